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
	// from is the time after which the client has no access.
	from time.Time
	// clock is the replica's clock if the client's access depends on the time, else nil.
	clock *clock
}

// startUnauthorizedClients starts the clients at all replicas.
func (s *scenario) startUnauthorizedClients() *unauthorizedClients {
	s.t.Helper()
	var all []unauthorizedClient
	for i, r := range s.replicas {
		add := func(name string, from time.Time, clock *clock, config *rest.Config) {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				s.t.Fatal(err)
			}
			client.Timeout = requestTimeout
			all = append(all, unauthorizedClient{fmt.Sprintf("%s at replica %d", name, i), r.URL + "/api/v1/secrets", client, from, clock})
		}
		add("an anonymous client", time.Time{}, nil, rest.AnonymousClientConfig(r.Config()))
		add("a user without rights", time.Time{}, nil, r.ConfigFor(r.PKI.Client("user-without-roles")))
		end := time.Now().Add(shortLifetime)
		over := r.PKI.Reissue(r.PKI.Client("former-admin", harness.SystemMasters), end)
		// Validity times of certificates have whole seconds.
		add("a former administrator", end.Add(time.Second), r.clock, r.ConfigFor(over))
		add("a future administrator", time.Time{}, r.clock, r.ConfigFor(r.PKI.Postpone(r.PKI.Client("future-admin", harness.SystemMasters), hours/2)))
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
					out.record(i.request(ctx))
				}
			}
		})
	}
	return out
}

// request reports whether the client was rejected. The error is a successful response without
// access.
func (i unauthorizedClient) request(ctx context.Context) (rejected bool, err error) {
	started, transitions := time.Now(), i.transitions()
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
	case resp.StatusCode < http.StatusBadRequest && started.After(i.from) && !i.excused(transitions):
		return false, fmt.Errorf("%s got %s", i.name, resp.Status)
	}
	return false, nil
}

// transitions returns those of the clock that the client's access depends on.
func (i unauthorizedClient) transitions() int64 {
	if i.clock == nil {
		return 0
	}
	return i.clock.transitions.Load()
}

// excused reports whether the replica's clock may have allowed the access.
func (i unauthorizedClient) excused(transitions int64) bool {
	return i.clock != nil && i.clock.mayHaveBeenWrong(transitions)
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

// end stops the clients and returns the number of rejections and the successful requests.
func (o *unauthorizedClients) end() (rejected int, err error) {
	o.stop()
	o.running.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rejected, errors.Join(o.errs...)
}
