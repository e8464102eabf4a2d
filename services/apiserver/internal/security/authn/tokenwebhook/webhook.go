// Package tokenwebhook authenticates bearer tokens with an external TokenReview service
// (specification: "Token webhook authentication"). A kubeconfig holds the address of the service
// and the client credentials: a client certificate, a token or a credential plugin.
//
// A Client tries each review at most twice. The duration of a try and the size of a response are
// limited. If the service is unavailable, the error is marked as authenticator.Unavailable.
// Redirects to other addresses are not followed, because a request contains the token. Package
// tokenreviews calls this package and caches the results.
package tokenwebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/libs/authenticator"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// Versions of the review.
const (
	V1      = "v1"
	V1beta1 = "v1beta1"
)

// Limits of a review.
const (
	// Timeout is the maximum duration of all tries with the default TryTimeout, including the delay
	// between them.
	Timeout = 2*tryTimeout + time.Second

	tryTimeout  = 5 * time.Second // of one try
	maxTries    = 2
	retryDelay  = 200 * time.Millisecond // mean of the random delay
	maxResponse = 1 << 20                // bytes
)

// Config configures a Client.
type Config struct {
	Kubeconfig string
	Version    string
	// Audiences are the audiences of a token if the service does not report any.
	Audiences  []string
	Registerer prometheus.Registerer
	Calls      *webhookclient.Metrics // may be nil
	Dial       webhookclient.Dial     // nil connects directly
	Logger     *slog.Logger
	// TryTimeout bounds one try; 0 means the default.
	TryTimeout time.Duration
}

// Client calls the service.
type Client struct {
	config   Config
	service  *webhookclient.Service
	duration *prometheus.HistogramVec
	total    *prometheus.CounterVec
}

// New returns a client. It does not call the service.
func New(config Config) (*Client, error) {
	if config.Version != V1 && config.Version != V1beta1 {
		return nil, fmt.Errorf("version %q of the token review is neither %s nor %s", config.Version, V1, V1beta1)
	}
	if config.TryTimeout == 0 {
		config.TryTimeout = tryTimeout
	}
	service, err := webhookclient.LoadHTTP1(config.Kubeconfig, config.Dial)
	if err != nil {
		return nil, fmt.Errorf("token review service: %w", err)
	}
	service.WarnPlain(config.Logger, "token webhook")
	service.Measure(config.Calls)
	client := &Client{config: config, service: service}
	client.registerMetrics()
	return client, nil
}

// registerMetrics creates and registers the metrics of requests.
func (c *Client) registerMetrics() {
	c.total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_delegated_authn_request_total",
		Help: "[ALPHA] Requests to the token review service by HTTP status, or <error>.",
	}, []string{"code"})
	c.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_delegated_authn_request_duration_seconds",
		Help:    "[ALPHA] Duration of requests to the token review service in seconds by HTTP status, or <error>.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	}, []string{"code"})
	c.config.Registerer.MustRegister(c.total, c.duration)
}

// Close closes idle connections.
func (c *Client) Close() { c.service.Close() }

// AuthenticateToken implements authenticator.Token.
func (c *Client) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	body, err := c.encodeReview(token, audiences)
	if err != nil {
		return nil, false, err
	}
	for try := 1; ; try++ {
		status, retry, err := c.sendReview(ctx, body)
		if err == nil {
			return c.interpretStatus(status, audiences)
		}
		if !retry || try == maxTries {
			return nil, false, authenticator.Unavailable(fmt.Errorf("call the token review service: %w", err))
		}
		if err := waitBeforeRetry(ctx); err != nil {
			return nil, false, authenticator.Unavailable(err)
		}
	}
}

// waitBeforeRetry waits between two tries, with jitter so that clients that failed together do not
// retry together.
func waitBeforeRetry(ctx context.Context) error {
	t := time.NewTimer(retryDelay/2 + rand.N(retryDelay))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// encodeReview returns the JSON of a TokenReview in the configured version.
func (c *Client) encodeReview(token string, audiences []string) ([]byte, error) {
	typ := metav1.TypeMeta{Kind: "TokenReview", APIVersion: c.apiVersion()}
	if c.config.Version == V1beta1 {
		return json.Marshal(&authenticationv1beta1.TokenReview{
			TypeMeta: typ,
			Spec:     authenticationv1beta1.TokenReviewSpec{Token: token, Audiences: audiences},
		})
	}
	return json.Marshal(&authenticationv1.TokenReview{
		TypeMeta: typ,
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	})
}

func (c *Client) apiVersion() string { return authenticationv1.GroupName + "/" + c.config.Version }

// sendReview sends one request. retry reports whether another try may succeed.
func (c *Client) sendReview(
	ctx context.Context,
	body []byte,
) (status *authenticationv1.TokenReviewStatus, retry bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.TryTimeout)
	defer cancel()
	start, code := time.Now(), "<error>"
	defer func() {
		c.total.WithLabelValues(code).Inc()
		c.duration.WithLabelValues(code).Observe(time.Since(start).Seconds())
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.service.URL, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", api.MediaJSON)
	req.Header.Set("Accept", api.MediaJSON)
	resp, err := c.service.Client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			// A timeout may be due to a broken connection. The next try uses a new one.
			c.service.Close()
		}
		return nil, true, err
	}
	defer resp.Body.Close()
	code = strconv.Itoa(resp.StatusCode)
	responseBody, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return nil, true, fmt.Errorf("read the response: %w", err)
	}
	switch {
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusUnauthorized: // a credential plugin may supply another credential next time
		return nil, true, fmt.Errorf("it returned %s", resp.Status)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated:
		return nil, false, fmt.Errorf("it returned %s", resp.Status)
	case len(responseBody) > maxResponse:
		return nil, false, errors.New("its response is too large")
	}
	// A response of v1beta1 has the same fields as one of v1.
	var review authenticationv1.TokenReview
	switch err := c.service.Decode(responseBody, &review); {
	case errors.Is(err, webhookclient.ErrTooManyValues):
		return nil, false, err
	case err != nil: // err is not returned, because it may quote the response
		return nil, false, errors.New("its response is not a TokenReview")
	}
	if review.Kind != "TokenReview" || review.APIVersion != c.apiVersion() {
		return nil, false, fmt.Errorf("its response is %s of %s, expected TokenReview of %s",
			review.Kind, review.APIVersion, c.apiVersion())
	}
	return &review.Status, false, nil
}

// interpretStatus returns the result that the service reports. The token must be valid for one of
// the requested audiences.
func (c *Client) interpretStatus(
	status *authenticationv1.TokenReviewStatus,
	requested []string,
) (*authenticator.Response, bool, error) {
	if !status.Authenticated {
		if status.Error != "" {
			return nil, false, errors.New(status.Error)
		}
		return nil, false, nil
	}
	if status.User.Username == "" {
		return nil, false, errors.New("the token review service authenticated a user without a name")
	}
	response := &authenticator.Response{User: authenticator.User{
		Name:   status.User.Username,
		UID:    status.User.UID,
		Groups: status.User.Groups,
	}}
	for k, v := range status.User.Extra {
		if response.User.Extra == nil {
			response.User.Extra = map[string][]string{}
		}
		response.User.Extra[k] = v
	}
	if len(requested) == 0 {
		return response, true, nil
	}
	accepted := status.Audiences
	if len(accepted) == 0 { // the service does not support audiences
		accepted = c.config.Audiences
	}
	response.Audiences = authenticator.Intersect(requested, accepted)
	if len(response.Audiences) == 0 {
		return nil, false, errors.New("the token is for other audiences")
	}
	return response, true, nil
}
