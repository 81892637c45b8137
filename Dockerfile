# The image of the watchet server, as docker-compose.yml builds it. The image of Rust has the C compiler and make that jemalloc and
# AWS-LC need.
FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /src
COPY . .
# The commit that /version shows, of a source tree without .git: --build-arg WATCHET_GIT_COMMIT=$(git rev-parse HEAD).
ARG WATCHET_GIT_COMMIT
# The caches keep the protobuf compiler and the dependencies between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked && cp target/release/watchet /watchet

# Makes the certificates of the etcd cluster in docker-compose.yml.
FROM debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716 AS certificates
RUN apt-get update && apt-get install --yes --no-install-recommends openssl && rm -rf /var/lib/apt/lists/*
COPY scripts/etcd-certificates /usr/local/bin/
ENTRYPOINT ["etcd-certificates"]

FROM debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716
COPY --from=build /watchet /usr/local/bin/watchet
# A user of its own; what the server keeps (certificates, the kubeconfig) is in the volume.
RUN useradd --system --uid 10001 watchet && install -d -o watchet -g watchet /var/lib/watchet
USER watchet
VOLUME /var/lib/watchet
EXPOSE 6443
ENTRYPOINT ["watchet"]
# A container's loopback is its own: nobody could reach what listens only there.
CMD ["serve", "--bind-address", "0.0.0.0", "--data-dir", "/var/lib/watchet"]
