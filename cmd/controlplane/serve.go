package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/retryplane/retryplane/internal/api"
	"github.com/retryplane/retryplane/internal/exchange"
	"github.com/retryplane/retryplane/internal/sharedbreaker"
	"github.com/retryplane/retryplane/internal/sharedbudget"
	"github.com/retryplane/retryplane/web"
)

// Limits of connections. There is no write timeout: streams are open for as long as their clients are, and bound each
// of their writes themselves.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 15 * time.Second
	idleTimeout    = 2 * time.Minute // above the 60 s of common load balancers, so that we never close first
	maxHeader      = 32 << 10
)

// serve wires the rooms together and serves until ctx ends, then ends gracefully: streams are told to go elsewhere,
// open requests get the grace time, what instances reported is flushed to Redis.
func serve(ctx context.Context, s settings, log *slog.Logger) error {
	st := openStore(s.redis, log)
	registry := prometheus.NewRegistry()
	st.rdb.AddHook(timings{api.NewStoreTimings(registry)})

	x := exchange.New(exchange.Config{Board: sharedbreaker.New(st.rdb), Ledger: sharedbudget.New(st.rdb), Log: log})
	server := api.New(api.Deps{
		Exchange: x, Auth: s.auth, Log: log, Version: version, Store: st.kind, Registry: registry, Page: web.Page(),
	})

	// The rooms outlive ctx: requests that are still open need them.
	rooms, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Run(rooms); err != nil {
			log.Error("the exchange ended", "error", err)
		}
	})
	running.Go(func() { server.Run(rooms) })

	err := listen(ctx, s, server, log)
	stop()
	running.Wait()
	if closed := st.close(); closed != nil {
		log.Debug("the store did not close cleanly", "error", closed)
	}
	return err
}

// drainer is the part of the API that shutdown needs.
type drainer interface {
	http.Handler
	Drain()
}

// reachable is h, or, while auth is off, the part of it that this machine may reach: a name that somebody points at
// 127.0.0.1 would let his page into the browser of whoever runs this (DNS rebinding).
func (s settings) reachable(h http.Handler) http.Handler {
	if s.auth != nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, err := url.Parse("//" + r.Host); err != nil || !loopback(u.Hostname()) {
			http.Error(w, "without tokens this server answers to localhost and loopback addresses only", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// advice says what to do when an address cannot be listened on.
func advice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": another program has the port: stop it, or choose another one with --listen"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": this machine does not have the address: choose one of its own with --listen, or :PORT for all of them"
	case errors.Is(err, syscall.EACCES):
		return ": this user may not have the port: choose one above 1023 with --listen"
	}
	return ""
}

// listen serves h until ctx ends and the last request has ended or the grace time is over.
func listen(ctx context.Context, s settings, h drainer, log *slog.Logger) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("serve on %s: %w%s", s.listen, err, advice(err))
	}
	hs := &http.Server{
		Handler:           s.reachable(h),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong with connections
	}
	log.Info("listening", "url", "http://"+l.Addr().String(), "version", version, "auth", s.auth != nil)
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(l) }() // ends with Shutdown or Close, and is awaited below

	select {
	case err := <-failed:
		return fmt.Errorf("serve on %s: %w", s.listen, err)
	case <-ctx.Done():
	}
	log.Info("shutting down", "grace", s.grace)
	var drained sync.WaitGroup
	drained.Go(h.Drain) // waits for slow streams; those that outlast the grace time are cut off by Close
	defer drained.Wait()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := hs.Shutdown(grace); err != nil {
		log.Warn("requests were cut off after the grace time", "error", err)
		_ = hs.Close() // the reason is logged
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", s.listen, err)
	}
	log.Info("ended")
	return nil
}
