package componentstatus

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Other components are probed at their default ports on this machine, as kube-apiserver does. No
// flag changes that.
const (
	controllerManagerHealth = "https://127.0.0.1:10257/healthz"
	schedulerHealth         = "https://127.0.0.1:10259/healthz"
	probeTimeout            = 5 * time.Second
	// maxProbeResponse bounds the response body that is read, in bytes.
	maxProbeResponse = 10 << 10
)

// Component is a component of the control plane.
type Component struct {
	Name string
	// Check returns the health of the component and a message. An error means that the health is
	// unknown.
	Check func(context.Context) (message string, healthy bool, err error)
}

// CheckStatus checks the component and returns its status.
func (c *Component) CheckStatus(ctx context.Context) *corev1.ComponentStatus {
	message, healthy, err := c.Check(ctx)
	cond := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Message: message}
	switch {
	case err != nil:
		cond.Status = corev1.ConditionUnknown
		cond.Error = err.Error()
	case healthy:
		cond.Status = corev1.ConditionTrue
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Conditions: []corev1.ComponentCondition{cond}}
}

// Pinger is a store that a component consists of.
type Pinger interface{ Ping(context.Context) error }

// Etcd returns the component of an etcd cluster.
func Etcd(name string, store Pinger) Component {
	return Component{Name: name, Check: func(ctx context.Context) (string, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err := store.Ping(ctx); err != nil {
			return err.Error(), false, nil
		}
		return "ok", true, nil
	}}
}

// Controllers returns the components of the controller manager and the scheduler.
func Controllers() (manager, scheduler Component) {
	client := &http.Client{
		Timeout: probeTimeout,
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
	manager = Component{Name: "controller-manager", Check: probe(controllerManagerHealth)}
	scheduler = Component{Name: "scheduler", Check: probe(schedulerHealth)}
	return manager, scheduler
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
	resp, err := client.Do(r)
	if err != nil {
		return err.Error(), false, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProbeResponse))
	if err != nil {
		return "", false, err
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode), false, nil
	}
	return string(body), true, nil
}
