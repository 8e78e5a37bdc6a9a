"""Record what the scheduler does with a command's threads. Root runs this folder as a program, without capabilities.

Its modules import Python's own and each other, nothing else: it runs without site-packages (`python -I -S`).
"""
