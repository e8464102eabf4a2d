package robustness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

const (
	requestInterval = 200 * time.Millisecond
	requestTimeout  = 3 * time.Second
)

// unauthorizedClients request secrets from every replica in a loop. There is an anonymous client, a
// user without rights, an administrator whose certificate expires meanwhile and an administrator
// whose certificate is not yet valid.
type unauthorizedClients struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex // never held while another lock is acquired
	rejected int
	errs     []error
}

// unauthorizedClient is one of these clients at one replica.
type unauthorizedClient struct {
	name   string
	url    string
	client *http.Client
	// deniedFrom is the time from which the client has no access.
	deniedFrom time.Time
	// clock is the replica's clock if the client's access depends on the time, else nil.
	clock *clock
}

// startUnauthorizedClients starts the clients at all replicas.
func (s *scenario) startUnauthorizedClients() *unauthorizedClients {
	s.t.Helper()
	var all []unauthorizedClient
	for i, target := range s.replicas {
		add := func(name string, from time.Time, clock *clock, config *rest.Config) {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				s.t.Fatal(err)
			}
			client.Timeout = requestTimeout
			all = append(all, unauthorizedClient{fmt.Sprintf("%s at replica %d", name, i), target.URL + "/api/v1/secrets",
				client, from, clock})
		}
		add("an anonymous client", time.Time{}, nil, rest.AnonymousClientConfig(target.Config()))
		add("a user without rights", time.Time{}, nil, target.ConfigFor(target.PKI.Client("user-without-roles")))
		end := time.Now().Add(shortCertificateLifetime)
		over := target.PKI.Reissue(target.PKI.Client("former-admin", harness.SystemMasters), end)
		// Validity times of certificates have whole seconds.
		add("a former administrator", end.Add(time.Second), target.clock, target.ConfigFor(over))
		add("a future administrator", time.Time{}, target.clock,
			target.ConfigFor(target.PKI.Postpone(target.PKI.Client("future-admin", harness.SystemMasters), threeHours/2)))
	}
	ctx, stop := context.WithCancel(s.t.Context())
	out := &unauthorizedClients{stop: stop}
	for _, i := range all {
		out.running.Go(func() {
			defer i.client.CloseIdleConnections()
			tick := time.NewTicker(requestInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					out.record(i.send(ctx))
				}
			}
		})
	}
	return out
}

// send sends a request and reports whether it was rejected. A successful response without access is
// an error.
func (i unauthorizedClient) send(ctx context.Context) (rejected bool, err error) {
	started, transitions := time.Now(), i.clockTransitions()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url, nil)
	if err != nil {
		return false, err
	}
	resp, err := i.client.Do(req)
	if err != nil {
		return false, nil
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return true, nil
	case resp.StatusCode < http.StatusBadRequest && started.After(i.deniedFrom) && !i.mayBeAllowedByClock(transitions):
		return false, fmt.Errorf("%s got %s", i.name, resp.Status)
	}
	return false, nil
}

// clockTransitions returns the number of transitions of the clock that the client's access depends
// on.
func (i unauthorizedClient) clockTransitions() int64 {
	if i.clock == nil {
		return 0
	}
	return i.clock.transitions.Load()
}

// mayBeAllowedByClock reports whether the replica's clock may have allowed the access.
func (i unauthorizedClient) mayBeAllowedByClock(transitions int64) bool {
	return i.clock != nil && i.clock.wasWrongSince(transitions)
}

// record counts the result of a request.
func (o *unauthorizedClients) record(rejected bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rejected {
		o.rejected++
	}
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

// stopAndCollect stops the clients and returns the number of rejections. The error names the
// requests that succeeded.
func (o *unauthorizedClients) stopAndCollect() (rejected int, err error) {
	o.stop()
	o.running.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rejected, errors.Join(o.errs...)
}
