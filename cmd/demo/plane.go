package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// plane is the control plane, a process of its own.
type plane struct {
	url   string
	cmd   *exec.Cmd
	ended chan error
}

// startPlane starts the control plane with its embedded store and waits until it is ready.
func startPlane(ctx context.Context, binary, listen string) (*plane, error) {
	p := &plane{url: "http://" + listen, ended: make(chan error, 1)}
	// Not under ctx: it is ended by us, after the fleet has said its last.
	p.cmd = exec.Command(binary, "serve", "--listen", listen, "--log-level", "error") //nolint:noctx // see above
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C is for us; we end it
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the control plane (make build makes it): %w", err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	if err := p.awaitReady(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *plane) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/readyz", http.NoBody)
		if err != nil {
			return fmt.Errorf("control plane: %w", err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("the control plane ended at once (is %s taken? try --listen 127.0.0.1:8090): %w", p.url, errors.Join(err, errEnded))
		case <-ctx.Done():
			return fmt.Errorf("the control plane was not ready in time: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

var errEnded = errors.New("process ended")

// stop ends the process and waits for it.
func (p *plane) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended: //nolint:errcheck // we ended it
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended //nolint:errcheck // we killed it
	}
}
