# grpcdiag with tcpdump, for an ordinary user. Needs the wheels in dist (`make wheels`).
#   docker build --tag grpcdiag .
#   docker run --rm --network none --volume "$PWD:/captures:ro" grpcdiag analyze run.pcap
#   docker run --rm --network host --volume "$PWD:/captures" grpcdiag capture -i any --port 50051 -o run.pcap
FROM python:3.13-slim-bookworm

# tcpdump records without root: docker grants CAP_NET_RAW to containers, and the file passes it on
RUN apt-get update \
    && apt-get install --yes --no-install-recommends iproute2 libcap2-bin tcpdump \
    && setcap cap_net_raw=eip "$(command -v tcpdump)" \
    && apt-get purge --yes --auto-remove libcap2-bin \
    && rm -rf /var/lib/apt/lists/*

RUN --mount=type=bind,source=dist,target=/dist \
    python -m pip install --no-cache-dir --root-user-action ignore --only-binary :all: /dist/grpcdiag-*manylinux*_"$(uname -m)".whl

RUN useradd --create-home --uid 1000 grpcdiag
USER grpcdiag
WORKDIR /captures
ENTRYPOINT ["grpcdiag"]
CMD ["--help"]
