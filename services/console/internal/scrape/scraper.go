package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// atOnce is how many replicas are scraped concurrently.
	atOnce = 16
	// patience bounds the scrape of one replica.
	patience   = 2 * time.Second
	maxChecks  = 64 << 10 // bytes of a response of /readyz
	maxFailing = 20
)

// Replica is a replica of a service, at an address with port.
type Replica struct{ Service, Address string }

// Scraper scrapes the replicas of some targets.
type Scraper struct {
	targets []Target
	clients map[string]*http.Client // by service
	find    lookup
	now     func() time.Time
}

// New returns a scraper that uses the client certificate and the trusted CAs of a configuration. It
// sends no other credentials.
func New(targets []Target, config *rest.Config) (*Scraper, error) {
	s := &Scraper{targets: targets, clients: map[string]*http.Client{}, find: net.DefaultResolver.LookupNetIP, now: time.Now}
	for _, t := range targets {
		if s.clients[t.Service] != nil {
			continue
		}
		own := rest.AnonymousClientConfig(config)
		own.TLSClientConfig.CertFile = config.CertFile
		own.TLSClientConfig.KeyFile = config.KeyFile
		own.TLSClientConfig.CertData = config.CertData
		own.TLSClientConfig.KeyData = config.KeyData
		own.TLSClientConfig.ServerName = t.Service
		own.QPS = -1
		own.Timeout = patience
		client, err := rest.HTTPClientFor(own)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", t.Service, err)
		}
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		s.clients[t.Service] = client
	}
	return s, nil
}

// Missing is a target whose replicas were not found.
type Missing struct {
	Service string
	Err     error
}

// Scrape scrapes all current replicas. Errors of a replica are in its sample.
func (s *Scraper) Scrape(ctx context.Context) (map[Replica]*Sample, []Missing) {
	out := map[Replica]*Sample{}
	var missing []Missing
	for _, t := range s.targets {
		looking, cancel := context.WithTimeout(ctx, patience)
		addresses, err := t.replicas(looking, s.find)
		cancel()
		if err == nil && len(addresses) == 0 {
			err = errors.New("no replica found")
		}
		if err != nil {
			missing = append(missing, Missing{t.Service, err})
		}
		for _, a := range addresses {
			out[Replica{t.Service, a}] = &Sample{}
		}
	}
	var group sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for r, sample := range out {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			s.ask(ctx, r, sample)
		})
	}
	group.Wait()
	return out, missing
}

// ask fills a sample.
func (s *Scraper) ask(ctx context.Context, r Replica, sample *Sample) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sample.Err = s.get(ctx, r, "/metrics", func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return errors.New("it does not show its metrics: " + resp.Status)
		}
		return sample.read(resp.Body)
	})
	err := s.get(ctx, r, "/readyz", func(resp *http.Response) error {
		sample.Ready = resp.StatusCode == http.StatusOK
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxChecks))
		for line := range strings.Lines(string(text)) {
			if check, ok := strings.CutPrefix(line, "[-]"); ok && len(sample.Failing) < maxFailing {
				check, _, _ = strings.Cut(check, " ")
				sample.Failing = append(sample.Failing, check)
			}
		}
		return err
	})
	if sample.Err == nil {
		sample.Err = err
	}
	sample.At = s.now()
}

func (s *Scraper) get(ctx context.Context, r Replica, path string, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.Address+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/plain")
	resp, err := s.clients[r.Service].Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp)
}
