# The engine for tests: interpreter, packages and code are lent by the node, at their own paths, read-only.
ARG BASE
FROM ${BASE}
ARG COMMAND
RUN ln -s "${COMMAND}" /usr/local/bin/paternoster
# The interpreter may live below /root.
RUN chmod 755 /root
# The native CPU kernels that the machine has compiled, where engines look for them.
COPY . /var/cache/paternoster/kernels
ENV PYTHONUNBUFFERED=1 USER=paternoster HOME=/tmp XDG_CACHE_HOME=/var/cache
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["paternoster"]
