package webhooks

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	admissionreview "k8s.io/api/admission/v1"
	admissionreviewv1beta1 "k8s.io/api/admission/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

const (
	// MaxResponse bounds the body of a response; patches may be as long as objects.
	MaxResponse = 8 << 20
	// MaxValues bounds the JSON values of a response; a patch is a single string.
	MaxValues = 1 << 17
)

// clients creates and caches the connections to webhooks, which live as long as the configuration
// of a webhook is unchanged.
type clients struct {
	credentials *Credentials
	services    *webhookclient.Services
	internal    http.RoundTripper // to this server itself; may be nil
	dialers     webhookclient.Dialers
	content     rest.ClientContentConfig
	calls       *webhookclient.Metrics
	responses   *webhookclient.ResponseLimiter
	breakers    breakers
	log         *slog.Logger

	mu      sync.Mutex // acquired before the mutexes of callers
	callers map[string]*caller
}

// newClients returns clients for webhooks that share connections by their configuration.
func newClients(c *Config, b breakers) (*clients, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionreview.AddToScheme, admissionreviewv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	versions := []schema.GroupVersion{admissionreviewv1beta1.SchemeGroupVersion, admissionreview.SchemeGroupVersion}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(versions...)
	negotiated := serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	var internal http.RoundTripper
	if c.Services != nil {
		internal = c.Services.Internal
	}
	responses := c.Responses
	if responses == nil {
		responses = webhookclient.NewResponseLimiter(0)
	}
	return &clients{
		credentials: c.Credentials, services: c.Services, internal: internal, dialers: c.Dialers, calls: c.Calls, responses: responses, breakers: b, log: c.Logger, callers: map[string]*caller{},
		content: rest.ClientContentConfig{
			ContentType: runtime.ContentTypeJSON, GroupVersion: admissionreview.SchemeGroupVersion,
			Negotiator: runtime.NewClientNegotiator(negotiated, admissionreview.SchemeGroupVersion),
		},
	}, nil
}

// caller calls one webhook.
type caller struct {
	key     string
	config  admissionv1.WebhookClientConfig
	clients *clients
	breaker *breaker

	mu      sync.Mutex // leaf lock
	client  *rest.RESTClient
	release func()
}

// caller returns the caller for a key, and creates it if needed.
func (c *clients) caller(key string, h *hook, config admissionv1.WebhookClientConfig) *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.callers[key]
	if found == nil {
		found = &caller{key: key, config: config, clients: c}
		found.breaker = c.breakers.new(h)
		c.callers[key] = found
	}
	return found
}

// retain closes all callers except those in use. Calls in progress complete.
func (c *clients) retain(used map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, caller := range c.callers {
		if !used[key] {
			delete(c.callers, key)
			caller.close()
		}
	}
}

// close stops probes and closes idle connections. Calls in progress complete; their connections
// close after the idle timeout.
func (c *caller) close() {
	c.breaker.retire()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.release != nil {
		c.release()
	}
}

// connect returns the client, and creates it at the first call. After an error, the next call tries
// again, because a missing credentials file may exist then.
func (c *caller) connect() (*rest.RESTClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	client, release, err := c.clients.connect(&c.config)
	if err == nil {
		c.client = client
		c.release = release
	}
	return client, err
}

// connect returns a REST client for a webhook, and a function that closes its connections.
func (c *clients) connect(w *admissionv1.WebhookClientConfig) (*rest.RESTClient, func(), error) {
	address, config, err := c.address(w)
	if err != nil {
		return nil, nil, err
	}
	if len(w.CABundle) > 0 {
		config.CAData = append(append(config.CAData[:len(config.CAData):len(config.CAData)], '\n'), w.CABundle...)
	}
	client := webhookclient.NewInternalClient(c.internal, address, MaxResponse, c.calls)
	release := func() {}
	if client == nil {
		if client, release, err = webhookclient.NewClient(config, address, MaxResponse, c.calls); err != nil {
			return nil, nil, err
		}
	}
	out, err := rest.NewRESTClient(&url.URL{Scheme: address.Scheme, Host: address.Host}, address.Path, c.content, nil, client)
	if err != nil {
		release()
		return nil, nil, err
	}
	return out, release, nil
}

// address returns the address of a webhook and the client configuration for it.
func (c *clients) address(w *admissionv1.WebhookClientConfig) (*url.URL, *rest.Config, error) {
	s := w.Service
	if s == nil {
		return c.urlAddress(w)
	}
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	host := s.Name + "." + s.Namespace + ".svc"
	address := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	if s.Path != nil {
		address.Path = *s.Path
	}
	config, err := c.credentials.forHost(address.Host)
	if err != nil {
		return nil, nil, err
	}
	config.ServerName = host
	namespace := s.Namespace
	name := s.Name
	dial := c.dialers.Select(true)
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr, err := c.services.Resolve(ctx, namespace, name, port)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, addr)
	}
	return address, config, nil
}

// urlAddress returns the address of a webhook that is configured by URL.
func (c *clients) urlAddress(w *admissionv1.WebhookClientConfig) (*url.URL, *rest.Config, error) {
	if w.URL == nil {
		return nil, nil, errNoAddress
	}
	address, err := url.Parse(*w.URL)
	if err != nil {
		return nil, nil, err
	}
	hostPort := address.Host
	if address.Port() == "" {
		hostPort = net.JoinHostPort(address.Hostname(), httpsPort)
	}
	config, err := c.credentials.forHost(hostPort)
	if err != nil {
		return nil, nil, err
	}
	config.Dial = c.dialers.Select(false)
	return address, config, nil
}
