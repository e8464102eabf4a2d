package suite

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

const (
	askInterval    = 50 * time.Millisecond
	askTimeout     = 5 * time.Second
	reportInterval = 3 * time.Second
	settlePatience = 2 * time.Second
	maxAnswer      = 64 << 10
)

// newClient returns a client with the admin's certificate.
func newClient(l certs.Layout) (*http.Client, error) {
	ca, err := tlsfiles.LoadBundle(l.CA().Cert)
	if err != nil {
		return nil, err
	}
	admin, err := tlsfiles.LoadPair(l.Admin().Cert, l.Admin().Key)
	if err != nil {
		return nil, err
	}
	return &http.Client{Timeout: askTimeout, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{*admin.Certificate()}},
		ForceAttemptHTTP2: true,
	}}, nil
}

// settle gives processes time to be ready, so that those that are started next
// find them. Who takes longer is waited for by them.
func settle(client *http.Client, group []*process) {
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	ask := time.NewTicker(askInterval)
	defer ask.Stop()
	for _, p := range group {
		for ready := false; !ready; ready, _ = isReady(ctx, client, p.health) {
			select {
			case <-ctx.Done():
				return
			case <-p.done:
				return
			case <-ask.C:
			}
		}
	}
}

// waitReady asks a service until it is ready, and reports now and then what
// it is waiting for.
func waitReady(ctx context.Context, client *http.Client, c *console, p *process) error {
	ask := time.NewTicker(askInterval)
	defer ask.Stop()
	report := time.NewTicker(reportInterval)
	defer report.Stop()
	state := "not asked yet"
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s", p.name, state)
		case <-report.C:
			c.say("waiting for %s: %s", p.name, state)
			continue
		case <-ask.C:
		}
		ready, now := isReady(ctx, client, p.health)
		if ready {
			c.say("%s is ready on port %d after %.1fs", p.name, p.port, time.Since(p.begin).Seconds())
			return nil
		}
		if ctx.Err() == nil {
			state = now
		}
	}
}

// isReady asks once. When the answer is no, it returns why.
func isReady(ctx context.Context, client *http.Client, url string) (ready bool, why string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return false, err.Error()
	}
	if resp.StatusCode == http.StatusOK {
		return true, ""
	}
	var failing []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failing = append(failing, name)
		}
	}
	if len(failing) == 0 {
		return false, resp.Status
	}
	return false, "failing checks: " + strings.Join(failing, ", ")
}
