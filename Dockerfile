# A container that runs lightrail (docs/start/install.md):
#
#     docker build -t lightrail .
#     docker run --rm -v "$PWD:/work" lightrail run rails_sparse --model-only
#     docker run --rm --privileged --device /dev/net/tun -v "$PWD:/work" lightrail run rails_sparse
#
# `vagrant/container.sh` tries it on a bare Debian where there is no container engine.
FROM debian:12-slim
COPY . /lightrail
RUN bash /lightrail/vagrant/provision.sh && rm -rf /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["/lightrail/.venv/bin/lightrail"]
