# The image of the watchet server, as docker-compose.yml builds it.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The commit that /version shows, of a source tree without .git: --build-arg WATCHET_GIT_COMMIT=$(git rev-parse HEAD).
ARG WATCHET_GIT_COMMIT
# The caches keep the protobuf compiler and the dependencies between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked && cp target/dist/watchet /watchet

FROM debian:bookworm-slim
COPY --from=build /watchet /usr/local/bin/watchet
# A user of its own; what the server keeps (certificates, the kubeconfig) is in the volume.
RUN useradd --system --uid 10001 watchet && install -d -o watchet -g watchet /var/lib/watchet
USER watchet
VOLUME /var/lib/watchet
EXPOSE 6443
ENTRYPOINT ["watchet"]
# A container's loopback is its own: nobody could reach what listens only there.
CMD ["serve", "--bind-address", "0.0.0.0", "--data-dir", "/var/lib/watchet"]
