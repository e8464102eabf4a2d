package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	probeTimeout = 5 * time.Second
	// The pause between probes starts at probeFirst while the API server is
	// not reached, doubles up to probeLast, and is probeLast once it is.
	probeFirst = 100 * time.Millisecond
	probeLast  = 10 * time.Second
	// maxProbeAnswer bounds what is read of the API server's answer.
	maxProbeAnswer = 4 << 10
)

// Probe follows whether the API server answers.
type Probe struct {
	log    *slog.Logger
	client *http.Client
	url    string

	mu      sync.Mutex // leaf
	failure error
	reached chan struct{} // closed once it was reached
}

// NewProbe returns a probe that waits for its first answer.
func NewProbe(config *rest.Config, log *slog.Logger) (*Probe, error) {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client for the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	return &Probe{
		log:     log,
		client:  client,
		url:     strings.TrimSuffix(base.String(), "/") + "/readyz",
		failure: errors.New("not asked yet"),
		reached: make(chan struct{}),
	}, nil
}

// Check is a health check: it fails with what is being waited for.
func (p *Probe) Check(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return fmt.Errorf("waiting for the API server: %w", p.failure)
	}
	return nil
}

// Reached is closed once the API server has answered.
func (p *Probe) Reached() <-chan struct{} { return p.reached }

// Run asks until ctx ends, and returns ctx's error.
func (p *Probe) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	pause := probeFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		err := p.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wasDown := p.note(err)
		switch {
		case err == nil:
			pause = probeLast
		case !wasDown:
			pause = probeFirst
		default:
			pause = min(2*pause, probeLast)
		}
		timer.Reset(pause)
	}
}

// note records an outcome, logs it if it is new, and tells whether the API
// server was out of reach before.
func (p *Probe) note(err error) (wasDown bool) {
	p.mu.Lock()
	before := p.failure
	p.failure = err
	if err == nil {
		select {
		case <-p.reached:
		default:
			close(p.reached)
		}
	}
	p.mu.Unlock()
	switch {
	case err == nil && before != nil:
		p.log.Info("API server reached", "url", p.url)
	case err != nil && (before == nil || before.Error() != err.Error()):
		p.log.Info("waiting for the API server", "url", p.url, "error", err)
	}
	return before != nil
}

func (p *Probe) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := drain(resp); err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusForbidden:
		// It knows us and serves; what we may do is decided elsewhere.
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("%s does not accept our credentials (status 401)", p.url)
	}
	return fmt.Errorf("%s answers with status %d", p.url, resp.StatusCode)
}

// drain reads a bounded answer to its end, so that the connection is reused.
func drain(resp *http.Response) error {
	_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbeAnswer))
	return err
}
