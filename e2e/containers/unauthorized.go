package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"binnacle/e2e/harness"
)

// requestInterval is the pause between two requests of a client.
const requestInterval = 100 * time.Millisecond

// unauthorizedClients send requests without permission to every API server in a loop. During every
// fault they must be rejected or get no response.
type unauthorizedClients struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex // never held while another lock is acquired
	rejected int
	errs     []error
}

// unauthorizedClient is a client and its request.
type unauthorizedClient struct {
	name   string
	client *http.Client
	method string
	url    string
}

// startUnauthorizedClients creates a service account without rights and starts clients with it and
// with other credentials.
func (c *composition) startUnauthorizedClients(ctx context.Context) *unauthorizedClients {
	c.t.Helper()
	admin := c.adminClient("apiserver-1")
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "unauthorized"}},
		metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "unauthorized",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []unauthorizedClient
	for _, server := range []string{"apiserver-1", "apiserver-2"} {
		for _, r := range unauthorizedRequests(token.Status.Token) {
			all = append(all, c.newUnauthorizedClient(server, r))
		}
	}

	ctx, stop := context.WithCancel(ctx)
	out := &unauthorizedClients{stop: stop}
	harness.Eventually(c.t, waitTimeout, "the rejection of an unauthorized client", func() error {
		if err := out.send(ctx, all[0]); err != nil {
			return err
		}
		if out.rejected == 0 {
			return errors.New("no response")
		}
		return nil
	})
	for _, client := range all {
		out.running.Go(func() {
			tick := time.NewTicker(requestInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if err := out.send(ctx, client); err != nil {
					out.mu.Lock()
					out.errs = append(out.errs, err)
					out.mu.Unlock()
				}
			}
		})
	}
	return out
}

// unauthorizedRequest is a request that no API server may serve. An empty method is GET.
type unauthorizedRequest struct {
	name         string
	certificate  string // client certificate, as FOLDER/NAME; may be empty
	token        string // bearer token; may be empty
	method, path string
}

// unauthorizedRequests returns the requests. token is that of a service account without rights.
func unauthorizedRequests(token string) []unauthorizedRequest {
	const secrets, configMap = "/api/v1/secrets", "/api/v1/namespaces/default/configmaps/none"
	return []unauthorizedRequest{
		{name: "an anonymous client", path: secrets},
		{name: "a wrong token", token: "abcdef.0123456789abcdef", path: secrets},
		{name: "a damaged token", token: token[:len(token)-4], path: "/api"},
		{name: "a service account", token: token, path: secrets},
		{name: "a service account, to delete", token: token, method: http.MethodDelete, path: configMap},
		{name: "the token cleaner", certificate: "tokencleaner/tokencleaner-client", path: secrets},
		{name: "an API server, to etcd", certificate: "apiserver/apiserver-etcd-client", path: "/api"},
		{name: "a front proxy without a user", certificate: "front-proxy/front-proxy-client", path: "/api"},
	}
}

// newUnauthorizedClient returns a client that sends a request to a server.
func (c *composition) newUnauthorizedClient(server string, request unauthorizedRequest) unauthorizedClient {
	c.t.Helper()
	config := c.clientConfig(server, request.certificate)
	config.BearerToken = request.token
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		c.t.Fatal(err)
	}
	client.Timeout = dialTimeout
	c.t.Cleanup(client.CloseIdleConnections)
	return unauthorizedClient{
		name:   request.name + " at " + server,
		client: client,
		method: cmp.Or(request.method, http.MethodGet),
		url:    config.Host + request.path,
	}
}

// send sends a request and returns an error for a successful response. A 404 counts as success,
// because it was authorized and the object does not exist.
func (o *unauthorizedClients) send(ctx context.Context, client unauthorizedClient) error {
	req, err := http.NewRequestWithContext(ctx, client.method, client.url, nil)
	if err != nil {
		return err
	}
	resp, err := client.client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.rejected++
		return nil
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil
	}
	return fmt.Errorf("%s got %s", client.name, resp.Status)
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
