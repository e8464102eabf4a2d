package build

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	"binnacle/services/apiserver/internal/rest/handlers"
)

// Other components are probed at their default ports on this machine, as kube-apiserver does. No
// flag changes that.
const (
	controllerManagerHealth = "https://127.0.0.1:10257/healthz"
	schedulerHealth         = "https://127.0.0.1:10259/healthz"
	componentTimeout        = 5 * time.Second
	// maxComponentResponse bounds the response body that is read, in bytes.
	maxComponentResponse = 10 << 10
)

// components returns the checks of componentstatuses.
func components(s *stores) []handlers.Component {
	client := &http.Client{
		Timeout: componentTimeout,
		Transport: &http.Transport{
			// The components have self-signed certificates, and the probes send nothing
			// confidential.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	probe := func(url string) func(context.Context) (string, bool, error) {
		return func(ctx context.Context) (string, bool, error) { return probeHealth(ctx, client, url) }
	}
	return append([]handlers.Component{
		{Name: "controller-manager", Check: probe(controllerManagerHealth)},
		{Name: "etcd-0", Check: etcdCheck(s.store)},
		{Name: "scheduler", Check: probe(schedulerHealth)},
	}, s.overrideClusters.components()...)
}

// etcdCheck returns a check that pings a store.
func etcdCheck(s objectStore) func(context.Context) (string, bool, error) {
	return func(ctx context.Context) (string, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, componentTimeout)
		defer cancel()
		if err := s.Ping(ctx); err != nil {
			return err.Error(), false, nil
		}
		return "ok", true, nil
	}
}

// probeHealth requests a health endpoint. It returns the response body and whether the component is
// healthy.
func probeHealth(ctx context.Context, client *http.Client, url string) (string, bool, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", false, err
	}
	r.Header.Set("User-Agent", "kube-apiserver")
	r.Header.Set("Accept", "*/*")
	answer, err := client.Do(r)
	if err != nil {
		return err.Error(), false, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxComponentResponse))
	if err != nil {
		return "", false, err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.StatusCode), false, nil
	}
	return string(body), true, nil
}
