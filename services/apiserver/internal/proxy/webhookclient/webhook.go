package webhookclient

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"binnacle/services/apiserver/internal/proxy/clientcerts"
)

const (
	// maxClients bounds the cached clients; the least recently used ones are evicted. A client that
	// is unused for unusedClient is removed, because its connections are closed and its webhook may
	// be gone.
	maxClients   = 500
	unusedClient = idleTimeout
	// webhookAgent is the User-Agent that webhooks see, as in Kubernetes.
	webhookAgent = "kube-apiserver-admission"
	defaultPort  = 443
)

// Webhook is a service that an API object names, by URL or as a service of the cluster.
type Webhook struct {
	URL     string
	Service *ServiceReference
	// CABundle holds PEM certificates of the server's CA; empty means the CAs of the operating
	// system.
	CABundle []byte
}

// ServiceReference names a service of the cluster. Path may be empty; Port 0 means 443.
type ServiceReference struct {
	Namespace, Name, Path string
	Port                  int32
}

// Webhooks calls webhooks. It caches clients by address and CA bundle, so that a change takes
// effect at the next call.
type Webhooks struct {
	config  WebhooksConfig
	codec   runtime.NegotiatedSerializer
	decoder runtime.Decoder
	clients *lru.Cache[[sha256.Size]byte, *client]
}

// WebhooksConfig configures Webhooks.
type WebhooksConfig struct {
	// Scheme knows the types of requests and responses, which are of Versions.
	Scheme   *runtime.Scheme
	Versions []schema.GroupVersion
	// Resolve returns host:port of a service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Internal, if set, sends requests to this server itself as its own user.
	Internal http.RoundTripper
	// Dialers connect to webhooks.
	Dialers Dialers
	// Timeout bounds every call.
	Timeout time.Duration
	// MaxResponse bounds responses, in bytes.
	MaxResponse int64
	// Responses bounds concurrent large responses; nil means no limit.
	Responses *ResponseLimiter
	Metrics   *Metrics // may be nil
}

// Dialers connect to webhooks that API objects name. A nil Dial connects directly.
type Dialers struct {
	// Cluster dials services of the cluster, URLs dials webhooks that have a URL.
	Cluster, URLs Dial
}

// Select returns the dialer for services, or for URLs. It is never nil.
func (d Dialers) Select(toService bool) Dial {
	dial := d.URLs
	if toService {
		dial = d.Cluster
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return dial
}

// NewWebhooks creates the clients of one kind of webhook.
func NewWebhooks(c WebhooksConfig) (*Webhooks, error) {
	if c.Responses == nil {
		c.Responses = NewResponseLimiter(0)
	}
	codec := serializer.NewCodecFactory(c.Scheme).LegacyCodec(c.Versions...)
	w := &Webhooks{
		config:  c,
		codec:   serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec}),
		decoder: codec,
	}
	var err error
	w.clients, err = lru.NewWithEvict(maxClients, func(_ [sha256.Size]byte, c *client) { c.close() })
	return w, err
}

// Close closes idle connections.
func (w *Webhooks) Close() { w.clients.Purge() }

// client calls one webhook.
type client struct {
	*rest.RESTClient
	// base is nil if the webhook is this server itself.
	base *clientcerts.Pool
	// release removes the series of the host.
	release func()
	// unused removes the client after a time without use.
	unused *time.Timer
}

// close releases the client's series and idle connections. Calls in progress complete.
func (c *client) close() {
	c.unused.Stop()
	c.release()
	if c.base != nil {
		c.base.CloseIdleConnections()
	}
}

// CallOptions configure one call.
type CallOptions struct {
	// Timeout bounds the call and is sent to the webhook; 0 means only WebhooksConfig.Timeout.
	Timeout time.Duration
	// MaxBytes bounds the response in bytes; 0 means WebhooksConfig.MaxResponse. MaxValues bounds
	// its number of JSON values.
	MaxBytes  int64
	MaxValues int
	// Transform, if set, replaces the response body before it is decoded, for example to extract
	// large parts.
	Transform func(raw []byte) ([]byte, error)
	// Then, if set, is called after decoding, within the limits for large responses.
	Then func()
}

// Call sends a request and decodes the response into response. Errors have the messages of
// Kubernetes. Large responses are subject to the ResponseLimiter.
func (w *Webhooks) Call(ctx context.Context, hook *Webhook, callOptions CallOptions, request, response runtime.Object) error {
	key := hook.cacheKey()
	c, err := w.clientFor(key, hook)
	if err != nil {
		return err
	}
	ctx, limited := w.config.Responses.Start(ctx, string(key[:]), callOptions.MaxBytes)
	defer limited.End()
	r := c.Post()
	if callOptions.Timeout > 0 {
		r = r.Timeout(callOptions.Timeout)
	}
	result := r.Body(request).Do(ctx)
	return limited.DecodeInto(result, callOptions.MaxValues, func(raw []byte) error {
		if len(raw) == 0 {
			return result.Into(response) // returns the error for an empty body
		}
		if callOptions.Transform != nil {
			var err error
			if raw, err = callOptions.Transform(raw); err != nil {
				return err
			}
		}
		if err := w.decode(raw, response); err != nil {
			return err
		}
		if callOptions.Then != nil {
			callOptions.Then()
		}
		return nil
	})
}

// decode decodes a body like rest.Result.Into: a Status in place of the response is an error.
func (w *Webhooks) decode(raw []byte, response runtime.Object) error {
	out, _, err := w.decoder.Decode(raw, nil, response)
	if err != nil || out == response {
		return err
	}
	if st, ok := out.(*metav1.Status); ok && st.Status != metav1.StatusSuccess {
		return apierrors.FromObject(st)
	}
	return nil
}

// clientFor returns the client of a webhook, which it creates if necessary. Clients that are unused
// for a while are closed.
func (w *Webhooks) clientFor(key [sha256.Size]byte, hook *Webhook) (*client, error) {
	if c, ok := w.clients.Get(key); ok {
		c.unused.Reset(unusedClient)
		return c, nil
	}
	c, err := w.newClient(hook)
	if err != nil {
		return nil, err
	}
	c.unused = time.AfterFunc(unusedClient, func() { w.clients.Remove(key) })
	if existing, ok, _ := w.clients.PeekOrAdd(key, c); ok {
		c.close()
		return existing, nil
	}
	return c, nil
}

// cacheKey identifies the client for a webhook.
func (h *Webhook) cacheKey() (key [sha256.Size]byte) {
	sum := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(sum, binary.BigEndian, int64(len(b))) // hashes never fail
		_, _ = sum.Write(b)
	}
	part([]byte(h.URL))
	if s := h.Service; s != nil {
		part([]byte(s.Namespace))
		part([]byte(s.Name))
		part([]byte(s.Path))
		part(strconv.AppendInt(nil, int64(s.Port), 10))
	}
	part(h.CABundle)
	sum.Sum(key[:0])
	return key
}

// newClient creates the client of a webhook, which does not follow redirects.
func (w *Webhooks) newClient(hook *Webhook) (*client, error) {
	config := &rest.Config{
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: w.codec, ContentType: runtime.ContentTypeJSON},
		QPS:           -1,
	}
	t := &transport.Config{UserAgent: webhookAgent, DisableCompression: true, TLS: transport.TLSConfig{CAData: hook.CABundle}}
	switch {
	case hook.Service != nil:
		w.configureService(config, t, hook.Service)
	default:
		u, err := url.Parse(hook.URL)
		if err != nil {
			return nil, fmt.Errorf("unable to parse URL: %w", err)
		}
		config.Host = u.Scheme + "://" + u.Host
		config.APIPath = u.Path
		t.DialHolder = &transport.DialHolder{Dial: w.config.Dialers.Select(false)}
	}
	if c, err := w.internalClient(config); c != nil || err != nil {
		return c, err
	}
	base, err := newPool(t)
	if err != nil {
		return nil, err
	}
	authenticated, err := transport.HTTPWrappersForConfig(t, base)
	if err != nil {
		return nil, err
	}
	host := strings.TrimPrefix(strings.TrimPrefix(config.Host, "https://"), "http://")
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{
		Transport:     &limitedTransport{w.config.Metrics.instrument(authenticated, host), w.config.MaxResponse},
		Timeout:       w.config.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	if err != nil {
		return nil, err
	}
	return &client{RESTClient: c, base: base, release: w.config.Metrics.retain(host)}, nil
}

// internalClient returns the client of a webhook that is this server, and nil for any other one.
func (w *Webhooks) internalClient(config *rest.Config) (*client, error) {
	at, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	hc := NewInternalClient(w.config.Internal, at, w.config.MaxResponse, w.config.Metrics)
	if hc == nil {
		return nil, nil
	}
	hc.Timeout = w.config.Timeout
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, hc)
	if err != nil {
		return nil, err
	}
	return &client{RESTClient: c, release: w.config.Metrics.retain(at.Host)}, nil
}

// configureService configures a client for a service of the cluster. The certificate must be valid
// for the name of the service. The service is resolved for each connection.
func (w *Webhooks) configureService(config *rest.Config, t *transport.Config, serviceReference *ServiceReference) {
	port := serviceReference.Port
	if port == 0 {
		port = defaultPort
	}
	t.TLS.ServerName = serviceReference.Name + "." + serviceReference.Namespace + ".svc"
	host := net.JoinHostPort(t.TLS.ServerName, strconv.Itoa(int(port)))
	config.Host = "https://" + host
	config.APIPath = serviceReference.Path
	dial := w.config.Dialers.Select(true)
	t.DialHolder = &transport.DialHolder{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == host {
			at, err := w.config.Resolve(ctx, serviceReference.Namespace, serviceReference.Name, port)
			if err != nil {
				return nil, err
			}
			addr = at
		}
		return dial(ctx, network, addr)
	}}
}
