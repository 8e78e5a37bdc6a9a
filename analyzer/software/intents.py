"""What a finding wants changed: `analyzer/software/known` has the setting of each implementation for it."""

CLIENT, SERVER = 0, 1
"""The ends of a connection: an intent with two ends is a pair, indexed by them."""


def _at_both(what: str) -> tuple[str, str]:
    return f"{what} of the client", f"{what} of the server"


STREAM_WINDOW = _at_both("enlarge the stream window")
CONNECTION_WINDOW = _at_both("enlarge the connection window")
STREAM_LIMIT = "raise the stream limit"
FEWER_UPDATES = "send fewer WINDOW_UPDATEs"
NO_BDP_PROBES = "switch the BDP estimator off"
KEEPALIVE = "set the keepalive time"
KEEPALIVE_WITHOUT_CALLS = "send keepalive PINGs without calls"
RARER_KEEPALIVE = "send keepalive PINGs every 5 minutes"
KEEPALIVE_TIMEOUT = _at_both("set the keepalive timeout")
KEEPALIVE_AND_TIMEOUT = _at_both("set the keepalive time and timeout")
PERMIT_PINGS = "permit more PINGs"
IDLE_TIMEOUT = _at_both("set the idle timeout")
REQUESTS = "allow more requests on a connection"
REQUESTS_OF_CLIENT = "send more requests on a connection"
AGE = "raise the longest age of a connection"
GRACE = "give calls time after that age"
CONNECTION_LIMITS = "let connections live longer"
SHUTDOWN = "wait for open calls at a stop"
TWO_STEP_SHUTDOWN = "send two GOAWAYs at a stop"
BACKOFF = "shorten the connection back-off"
NO_SERVICE_CONFIG = "look no service config up in DNS"
DEADLINE = "set the deadline of a call"
CALL_TIMEOUT = _at_both("raise the timeout of calls")
ROUTE_TIMEOUT = "allow long calls through a proxy"
RETRIES = "limit the retries of a proxy"
ROUND_ROBIN = "spread calls over all servers"
ONE_CHANNEL = "share one channel"
MORE_CONNECTIONS = "use several connections"
SECOND_CHANNEL = "separate large messages"
BEYOND_STREAM_LIMIT = "connect again at the stream limit"
MORE_WRITERS = "let more threads write"
SHARED_STUBS = "call from several threads"
KEEP_BACKENDS = "keep connections to backends open"
UNBUFFERED = "pass messages on at once"
RATE = "raise the rate of the proxy"
NO_DELAY = "switch Nagle's algorithm off"
METADATA = _at_both("raise the limit on metadata")
SHORTER_FIELDS = "send less metadata in one field"
LESS_HEADERS = "spend less on header fields"
MESSAGE_SIZE = _at_both("raise the limit on received messages")
BODY_SIZE = "raise the limit on request bodies"
BACKEND = "check the proxy's backend"
HEALTH = "check the health of the proxy's backends"
BLOCKED_LOOP = "look for handlers that block the event loop"
ONE_AT_A_TIME = "work on more than one call"
MORE_AT_ONCE = "work on more calls"
CPU_QUOTA = "raise the CPU quota"
CONGESTION_WINDOW = "keep the congestion window during idle time"
INITIAL_WINDOW = "enlarge the initial congestion window"
CONGESTION_CONTROL = "choose another congestion control"
RECEIVE_BUFFER = "enlarge the TCP receive buffer"
GROWING_BUFFER = "let the TCP receive buffer grow"
GIVE_UP_SOONER = "let TCP give up sooner"
SMALLER_MTU = "send smaller packets"
PROBED_MTU = "let TCP find the MTU"
QUICK_ACKS = "acknowledge at once"
SHAPING = "limit the rate"
FEWER_INTERRUPTS = "gather interrupts"
