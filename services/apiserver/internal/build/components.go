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

// The parts of the control plane are asked where they listen on this machine
// unless somebody moved them, as every API server does: nobody can say otherwise.
const (
	controllerManagerHealth = "https://127.0.0.1:10257/healthz"
	schedulerHealth         = "https://127.0.0.1:10259/healthz"
	componentTimeout        = 5 * time.Second
	// componentAnswer bounds what is read of an answer, in bytes.
	componentAnswer = 10 << 10
)

// components are what componentstatuses tells of.
func (p *parts) components() []handlers.Component {
	client := &http.Client{
		Timeout: componentTimeout,
		Transport: &http.Transport{
			// The certificates are the components' own, and nothing is told them.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // as told above
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	asking := func(url string) func(context.Context) (string, bool, error) {
		return func(ctx context.Context) (string, bool, error) { return askHealth(ctx, client, url) }
	}
	return append([]handlers.Component{
		{Name: "controller-manager", Check: asking(controllerManagerHealth)},
		{Name: "etcd-0", Check: asEtcd(p.store)},
		{Name: "scheduler", Check: asking(schedulerHealth)},
	}, p.otherComponents()...)
}

// asEtcd returns a check that asks a store whether it answers.
func asEtcd(s objectStore) func(context.Context) (string, bool, error) {
	return func(ctx context.Context) (string, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, componentTimeout)
		defer cancel()
		if err := s.Ping(ctx); err != nil {
			return err.Error(), false, nil
		}
		return "ok", true, nil
	}
}

// askHealth asks for what an address says of its health.
func askHealth(ctx context.Context, client *http.Client, url string) (string, bool, error) {
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
	body, err := io.ReadAll(io.LimitReader(answer.Body, componentAnswer))
	if err != nil {
		return "", false, err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusBadRequest {
		return fmt.Sprintf("HTTP probe failed with statuscode: %d", answer.StatusCode), false, nil
	}
	return string(body), true, nil
}
