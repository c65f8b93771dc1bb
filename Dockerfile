# The control plane and the agent, static, without a shell: docker build -t retryplane .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ENV CGO_ENABLED=0 GOFLAGS="-tags=nomsgpack -buildvcs=false"
RUN go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ ./cmd/controlplane ./cmd/agent

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/controlplane"]
