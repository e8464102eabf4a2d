package webhooks

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionreviewv1beta1 "k8s.io/api/admission/v1beta1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

const (
	// MaxResponse is the maximum size of a response in bytes. A patch may be as large as an object.
	MaxResponse = 8 << 20
	// MaxValues is the maximum number of JSON values in a response. A patch counts as one value,
	// because it is an encoded string.
	MaxValues = 1 << 17
)

// clients holds the callers of all configured webhooks of a plugin. A caller, with its connections,
// lives as long as the client configuration of its webhook is unchanged.
type clients struct {
	credentials *Credentials
	services    *webhookclient.Services
	internal    http.RoundTripper // for webhooks that this server serves itself; may be nil
	dialers     webhookclient.Dialers
	content     rest.ClientContentConfig
	calls       *webhookclient.Metrics
	responses   *webhookclient.ResponseLimiter
	breakers    breakerFactory
	log         *slog.Logger

	mu      sync.Mutex         // acquired before the mutexes of callers
	callers map[string]*caller // by caller.key
}

// newClients returns a clients without callers. breakers creates the breakers of the callers.
func newClients(config *Config, breakers breakerFactory) (*clients, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, admissionreviewv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	versions := []schema.GroupVersion{admissionreviewv1beta1.SchemeGroupVersion, admissionv1.SchemeGroupVersion}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(versions...)
	negotiated := serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	var internal http.RoundTripper
	if config.Services != nil {
		internal = config.Services.Internal
	}
	responses := config.Responses
	if responses == nil {
		responses = webhookclient.NewResponseLimiter(0)
	}
	return &clients{
		credentials: config.Credentials, services: config.Services, internal: internal, dialers: config.Dialers, calls: config.Calls,
		responses: responses, breakers: breakers, log: config.Logger, callers: map[string]*caller{},
		content: rest.ClientContentConfig{
			ContentType: runtime.ContentTypeJSON, GroupVersion: admissionv1.SchemeGroupVersion,
			Negotiator: runtime.NewClientNegotiator(negotiated, admissionv1.SchemeGroupVersion),
		},
	}, nil
}

// caller holds the client and the breaker of one webhook.
type caller struct {
	key     string // UID of the configuration, name and client configuration of the webhook
	config  admissionregistrationv1.WebhookClientConfig
	clients *clients
	breaker *breaker

	mu      sync.Mutex       // leaf lock
	client  *rest.RESTClient // nil before the first successful connect
	release func()           // closes the connections of client
}

// callerFor returns the caller with a key, and creates it if needed.
func (c *clients) callerFor(key string, h *hook, config admissionregistrationv1.WebhookClientConfig) *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.callers[key]
	if found == nil {
		found = &caller{key: key, config: config, clients: c}
		found.breaker = c.breakers.newBreaker(h)
		c.callers[key] = found
	}
	return found
}

// retain removes and closes the callers whose keys are not in used. Their calls in progress
// complete.
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

// connect returns the REST client of the webhook. It creates the client when it is first called.
// After an error, the next call tries again, because a missing credentials file may exist by then.
func (c *caller) connect() (*rest.RESTClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	client, release, err := c.clients.newClient(&c.config)
	if err == nil {
		c.client = client
		c.release = release
	}
	return client, err
}

// newClient returns a REST client for a webhook, and a function that closes its connections.
func (c *clients) newClient(clientConfig *admissionregistrationv1.WebhookClientConfig) (*rest.RESTClient, func(), error) {
	address, config, err := c.addressOf(clientConfig)
	if err != nil {
		return nil, nil, err
	}
	if len(clientConfig.CABundle) > 0 {
		config.CAData = slices.Concat(config.CAData, []byte{'\n'}, clientConfig.CABundle)
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

// addressOf returns the URL of a webhook, and the client configuration with the credentials for it.
func (c *clients) addressOf(w *admissionregistrationv1.WebhookClientConfig) (*url.URL, *rest.Config, error) {
	serviceReference := w.Service
	if serviceReference == nil {
		return c.addressOfURL(w)
	}
	port := int32(443)
	if serviceReference.Port != nil {
		port = *serviceReference.Port
	}
	host := serviceReference.Name + "." + serviceReference.Namespace + ".svc"
	address := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	if serviceReference.Path != nil {
		address.Path = *serviceReference.Path
	}
	config, err := c.credentials.forHost(address.Host)
	if err != nil {
		return nil, nil, err
	}
	config.ServerName = host
	namespace := serviceReference.Namespace
	name := serviceReference.Name
	const inCluster = true
	dial := c.dialers.Select(inCluster)
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		addr, err := c.services.Resolve(ctx, namespace, name, port)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, addr)
	}
	return address, config, nil
}

// addressOfURL is addressOf for a webhook that is configured by URL instead of by service.
func (c *clients) addressOfURL(clientConfig *admissionregistrationv1.WebhookClientConfig) (*url.URL, *rest.Config, error) {
	if clientConfig.URL == nil {
		return nil, nil, errNoAddress
	}
	address, err := url.Parse(*clientConfig.URL)
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
	const inCluster = false
	config.Dial = c.dialers.Select(inCluster)
	return address, config, nil
}
