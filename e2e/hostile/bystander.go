package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// pace is how often the bystander asks.
	pace = 10 * time.Millisecond
	// bystanding is how long it waits for an answer; who is not answered then has
	// been hurt.
	bystanding = 20 * time.Second
)

// bystander does what ordinary clients do, one request after the other, and notes how
// long each took.
type bystander struct {
	t *target
	c *http.Client

	mu    sync.Mutex
	took  []time.Duration
	wrong []error
}

// watch lets it go on until the context ends.
func (b *bystander) run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begin := time.Now()
		err := b.ask(n)
		b.mu.Lock()
		b.took = append(b.took, time.Since(begin))
		if err != nil {
			b.wrong = append(b.wrong, err)
		}
		b.mu.Unlock()
	}
}

// ask makes one request.
func (b *bystander) ask(n int) error {
	const object = "/api/v1/namespaces/bystander/configmaps/mine"
	switch n % 4 {
	case 0:
		return b.do("GET", object, "")
	case 1:
		return b.do("PUT", object, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"mine"},"data":{"n":"%d"}}`, n))
	case 2:
		return b.do("GET", "/api/v1/namespaces/bystander/configmaps", "")
	}
	return b.do("GET", "/livez", "")
}

func (b *bystander) do(method, path, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bystanding)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.t.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, text)
	}
	return err
}

// waits is how long requests took.
type waits struct {
	n        int
	p50, p99 time.Duration
	most     time.Duration
}

func (w waits) String() string {
	const exact = 100 * time.Microsecond
	return fmt.Sprintf("%5d requests, half within %8v, 99%% within %8v, all within %8v", w.n, w.p50.Round(exact), w.p99.Round(exact), w.most.Round(exact))
}

// take returns what was seen since it was called last.
func (b *bystander) take() (waits, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	took, wrong := b.took, b.wrong
	b.took, b.wrong = nil, nil
	slices.Sort(took)
	w := waits{n: len(took)}
	if w.n > 0 {
		w.p50, w.p99, w.most = took[w.n/2], took[w.n*99/100], took[w.n-1]
	}
	return w, errors.Join(wrong[:min(len(wrong), 3)]...)
}
