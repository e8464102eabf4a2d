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
	// maxConcurrentScrapes is the number of replicas that are scraped concurrently.
	maxConcurrentScrapes = 16
	// scrapeTimeout bounds the scrape of one replica.
	scrapeTimeout = 2 * time.Second
	maxChecks     = 64 << 10 // bytes of a response of /readyz
	maxFailing    = 20       // failing checks that are kept of a replica
)

// Replica is a replica of a service, at an address with port.
type Replica struct{ Service, Address string }

// Scraper scrapes the replicas of some targets.
type Scraper struct {
	targets []Target
	clients map[string]*http.Client // by service
	lookup  lookupFunc
	now     func() time.Time
}

// New returns a scraper that uses the client certificate and the trusted CAs of a configuration. It
// sends no other credentials.
func New(targets []Target, config *rest.Config) (*Scraper, error) {
	scraper := &Scraper{targets: targets, clients: map[string]*http.Client{}, lookup: net.DefaultResolver.LookupNetIP, now: time.Now}
	for _, target := range targets {
		if scraper.clients[target.Service] != nil {
			continue
		}
		clientConfig := rest.AnonymousClientConfig(config)
		clientConfig.TLSClientConfig.CertFile = config.CertFile
		clientConfig.TLSClientConfig.KeyFile = config.KeyFile
		clientConfig.TLSClientConfig.CertData = config.CertData
		clientConfig.TLSClientConfig.KeyData = config.KeyData
		clientConfig.TLSClientConfig.ServerName = target.Service
		clientConfig.QPS = -1
		// Compression would allocate 1.5 MiB in each service, for a few KiB.
		clientConfig.DisableCompression = true
		clientConfig.Timeout = scrapeTimeout
		client, err := rest.HTTPClientFor(clientConfig)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", target.Service, err)
		}
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		scraper.clients[target.Service] = client
	}
	return scraper, nil
}

// MissingTarget is a target whose replicas were not found.
type MissingTarget struct {
	Service string
	Err     error
}

// Scrape scrapes all current replicas. Errors of a replica are in its sample.
func (s *Scraper) Scrape(ctx context.Context) (map[Replica]*Sample, []MissingTarget) {
	// 1. Find the replicas.
	samples := map[Replica]*Sample{}
	var missing []MissingTarget
	for _, target := range s.targets {
		lookupCtx, cancel := context.WithTimeout(ctx, scrapeTimeout)
		addresses, err := target.lookUpReplicas(lookupCtx, s.lookup)
		cancel()
		if err == nil && len(addresses) == 0 {
			err = errors.New("no replica found")
		}
		if err != nil {
			missing = append(missing, MissingTarget{target.Service, err})
		}
		for _, a := range addresses {
			samples[Replica{target.Service, a}] = &Sample{}
		}
	}

	// 2. Scrape them concurrently.
	var group sync.WaitGroup
	slots := make(chan struct{}, maxConcurrentScrapes)
	for replica, sample := range samples {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			s.scrapeReplica(ctx, replica, sample)
		})
	}
	group.Wait()
	return samples, missing
}

// scrapeReplica fills in the sample of a replica.
func (s *Scraper) scrapeReplica(ctx context.Context, replica Replica, sample *Sample) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	sample.Err = s.getPath(ctx, replica, "/metrics", func(resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return errors.New("/metrics returned " + resp.Status)
		}
		return sample.readMetrics(resp.Body)
	})
	err := s.getPath(ctx, replica, "/readyz", func(resp *http.Response) error {
		sample.Ready = resp.StatusCode == http.StatusOK
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxChecks))
		for line := range strings.Lines(string(data)) {
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
	sample.Time = s.now()
}

// getPath sends a GET request to a replica and passes the response to read.
func (s *Scraper) getPath(ctx context.Context, replica Replica, path string, read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+replica.Address+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/plain")
	resp, err := s.clients[replica.Service].Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp)
}
