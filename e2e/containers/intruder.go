package containers

import (
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

const knockInterval = 100 * time.Millisecond

// intruders ask for what they may not have, over and over, of every API server.
// Whatever is damaged, the answer is no, or none.
type intruders struct {
	stop   context.CancelFunc
	asking sync.WaitGroup

	mu      sync.Mutex // a leaf
	refused int
	errs    []error
}

// intruder is somebody and what he asks for.
type intruder struct {
	who    string
	client *http.Client
	method string
	url    string
}

// startIntruders makes a service account without rights, and sends it and others.
func (c *composition) startIntruders(ctx context.Context) *intruders {
	c.t.Helper()
	admin := c.admin("apiserver-1")
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "intruder"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, "intruder", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []intruder
	for _, server := range []string{"apiserver-1", "apiserver-2"} {
		add := func(who, pair, bearer, method, path string) {
			config := c.config(server, pair)
			config.BearerToken = bearer
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				c.t.Fatal(err)
			}
			client.Timeout = dialTimeout
			c.t.Cleanup(client.CloseIdleConnections)
			all = append(all, intruder{who + " at " + server, client, method, config.Host + path})
		}
		const secrets, maps = "/api/v1/secrets", "/api/v1/namespaces/default/configmaps/none"
		add("nobody", "", "", http.MethodGet, secrets)
		add("a wrong token", "", "abcdef.0123456789abcdef", http.MethodGet, secrets)
		add("a damaged token", "", token.Status.Token[:len(token.Status.Token)-4], http.MethodGet, "/api")
		add("a service account", "", token.Status.Token, http.MethodGet, secrets)
		add("a service account, to delete", "", token.Status.Token, http.MethodDelete, maps)
		add("the token cleaner", "tokencleaner/tokencleaner-client", "", http.MethodGet, secrets)
		add("an API server, to etcd", "apiserver/apiserver-etcd-client", "", http.MethodGet, "/api")
		add("a front proxy without a user", "front-proxy/front-proxy-client", "", http.MethodGet, "/api")
	}
	ctx, stop := context.WithCancel(ctx)
	out := &intruders{stop: stop}
	harness.Eventually(c.t, patience, "an intruder is refused", func() error {
		if err := out.ask(ctx, all[0]); err != nil {
			return err
		}
		if out.refused == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	for _, i := range all {
		out.asking.Go(func() {
			tick := time.NewTicker(knockInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if err := out.ask(ctx, i); err != nil {
					out.mu.Lock()
					out.errs = append(out.errs, err)
					out.mu.Unlock()
				}
			}
		})
	}
	return out
}

// ask returns an error when the answer is yes. No object of that name is there, so
// that a 404 is one as well.
func (o *intruders) ask(ctx context.Context, i intruder) error {
	req, err := http.NewRequestWithContext(ctx, i.method, i.url, nil)
	if err != nil {
		return err
	}
	resp, err := i.client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.refused++
		return nil
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil
	}
	return fmt.Errorf("%s was answered %s", i.who, resp.Status)
}

// end returns how often they were refused, and when they were not.
func (o *intruders) end() (refused int, err error) {
	o.stop()
	o.asking.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused, errors.Join(o.errs...)
}
