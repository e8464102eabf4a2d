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
	knockInterval = 200 * time.Millisecond
	knockTimeout  = 3 * time.Second
)

// intruders ask every replica for secrets, over and over: nobody in particular, one who
// is known and may do nothing, an administrator whose certificate ends meanwhile, and
// one whose certificate does not begin yet.
type intruders struct {
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu      sync.Mutex // a leaf
	refused int
	errs    []error
}

// intruder is one of them at a replica.
type intruder struct {
	who    string
	url    string
	client *http.Client
	// from is when he may not ask any more.
	from time.Time
	// clock is that of the replica if his right is a matter of time.
	clock *clock
}

// startIntruders sends them to all replicas.
func (s *scenario) startIntruders() *intruders {
	s.t.Helper()
	var all []intruder
	for i, r := range s.replicas {
		add := func(who string, from time.Time, clock *clock, config *rest.Config) {
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				s.t.Fatal(err)
			}
			client.Timeout = knockTimeout
			all = append(all, intruder{fmt.Sprintf("%s at replica %d", who, i), r.URL + "/api/v1/secrets", client, from, clock})
		}
		add("nobody", time.Time{}, nil, rest.AnonymousClientConfig(r.Config()))
		add("somebody without rights", time.Time{}, nil, r.ConfigFor(r.PKI.Client("nobody-special")))
		end := time.Now().Add(soon)
		over := r.PKI.Reissue(r.PKI.Client("former-admin", harness.SystemMasters), end)
		// Certificates count in whole seconds.
		add("a former administrator", end.Add(time.Second), r.clock, r.ConfigFor(over))
		add("a future administrator", time.Time{}, r.clock, r.ConfigFor(r.PKI.Postpone(r.PKI.Client("future-admin", harness.SystemMasters), hours/2)))
	}
	ctx, stop := context.WithCancel(s.t.Context())
	out := &intruders{stop: stop}
	for _, i := range all {
		out.asking.Go(func() {
			defer i.client.CloseIdleConnections()
			tick := time.NewTicker(knockInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					out.note(i.ask(ctx))
				}
			}
		})
	}
	return out
}

// ask tells whether he was refused; the error is an answer that he may not have.
func (i intruder) ask(ctx context.Context) (refused bool, err error) {
	begun, turns := time.Now(), i.turns()
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
	case resp.StatusCode < http.StatusBadRequest && begun.After(i.from) && !i.excused(turns):
		return false, fmt.Errorf("%s was answered %s", i.who, resp.Status)
	}
	return false, nil
}

// turns are those of the clock that his right depends on.
func (i intruder) turns() int64 {
	if i.clock == nil {
		return 0
	}
	return i.clock.turns.Load()
}

// excused tells whether the replica's clock may have said that he has the right.
func (i intruder) excused(turns int64) bool { return i.clock != nil && i.clock.doubtful(turns) }

func (o *intruders) note(refused bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if refused {
		o.refused++
	}
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

// end returns how often they were refused, and when they were not.
func (o *intruders) end() (refused int, err error) {
	o.stop()
	o.asking.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused, errors.Join(o.errs...)
}
