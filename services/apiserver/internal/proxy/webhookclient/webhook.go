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
	// maxClients bounds the clients that are kept for webhooks, the longest
	// unused go first. A client that is unused for unusedClient goes: it has no connections left,
	// and its webhook may be gone.
	maxClients   = 500
	unusedClient = idleTimeout
	// webhookAgent is the User-Agent that webhooks see, which is the API's.
	webhookAgent = "kube-apiserver-admission"
	defaultPort  = 443
)

// Webhook is a service that an object of the API names: by its URL, or as a
// service of the cluster.
type Webhook struct {
	URL     string
	Service *Reference
	// CABundle are the PEM certificates that the server must have one of; without
	// any those of the machine count.
	CABundle []byte
}

// Reference names a service. Path may be empty; a Port of 0 is 443.
type Reference struct {
	Namespace, Name, Path string
	Port                  int32
}

// Webhooks asks webhooks. Clients are kept by what the objects say of them, so
// that a changed address or certificate counts from the next question on.
type Webhooks struct {
	config  WebhooksConfig
	codec   runtime.NegotiatedSerializer
	decoder runtime.Decoder
	clients *lru.Cache[[sha256.Size]byte, *client]
}

// WebhooksConfig is what webhooks are asked with.
type WebhooksConfig struct {
	// Scheme knows the questions and answers, which are of Versions.
	Scheme   *runtime.Scheme
	Versions []schema.GroupVersion
	// Resolve says where a service is, as host:port.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Own, if set, sends requests to this server itself, as its own user.
	Own http.RoundTripper
	// Ways lead to webhooks.
	Ways Ways
	// Timeout bounds every question.
	Timeout time.Duration
	// MaxAnswer bounds answers, in bytes.
	MaxAnswer int64
	// Answers are those that are read at a time; nil is others than those of anybody else.
	Answers *Answers
	Metrics *Metrics // may be nil
}

// Ways lead to webhooks that objects name; nil ones go straight there.
type Ways struct {
	// Cluster leads to services of the cluster, URLs to webhooks that are named by a URL.
	Cluster, URLs Dial
}

// To are the connections to a service where toService is true, else to a URL.
func (w Ways) To(toService bool) Dial {
	dial := w.URLs
	if toService {
		dial = w.Cluster
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return dial
}

// NewWebhooks makes the clients of one sort of webhook.
func NewWebhooks(c WebhooksConfig) (*Webhooks, error) {
	if c.Answers == nil {
		c.Answers = NewAnswers()
	}
	codec := serializer.NewCodecFactory(c.Scheme).LegacyCodec(c.Versions...)
	w := &Webhooks{config: c, codec: serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec}), decoder: codec}
	var err error
	w.clients, err = lru.NewWithEvict(maxClients, func(_ [sha256.Size]byte, c *client) { c.close() })
	return w, err
}

// Close lets go of connections that nobody uses.
func (w *Webhooks) Close() { w.clients.Purge() }

// client asks one webhook.
type client struct {
	*rest.RESTClient
	// base is nil for the server itself.
	base *clientcerts.Pool
	// forget releases the series of the host.
	forget func()
	// unused removes the client after a time without use.
	unused *time.Timer
}

// close releases the client's series and idle connections. Calls in progress complete.
func (c *client) close() {
	c.unused.Stop()
	c.forget()
	if c.base != nil {
		c.base.CloseIdleConnections()
	}
}

// Terms are what a question is asked on.
type Terms struct {
	// Limit is how long it may take, Timeout where that is 0; the webhook is told.
	Limit time.Duration
	// Most is how many bytes the answer may have, MaxAnswer where that is 0, and Values how
	// many values.
	Most   int64
	Values int
	// Cut, if set, takes what is large out of an answer, and returns the rest, which is decoded.
	Cut func(raw []byte) ([]byte, error)
	// Use, if set, does what else takes long, when the answer has been decoded.
	Use func()
}

// Ask sends a question and reads the answer into answer. Errors have the words of
// Kubernetes. Large answers wait for others that are read and decoded.
func (w *Webhooks) Ask(ctx context.Context, hook *Webhook, t Terms, question, answer runtime.Object) error {
	key := hook.key()
	c, err := w.client(key, hook)
	if err != nil {
		return err
	}
	ctx, came := w.config.Answers.Begin(ctx, string(key[:]), t.Most)
	defer came.End()
	r := c.Post()
	if t.Limit > 0 {
		r = r.Timeout(t.Limit)
	}
	result := r.Body(question).Do(ctx)
	return came.Into(result, t.Values, func(raw []byte) error {
		if len(raw) == 0 {
			return result.Into(answer) // which says so
		}
		if t.Cut != nil {
			var err error
			if raw, err = t.Cut(raw); err != nil {
				return err
			}
		}
		if err := w.decode(raw, answer); err != nil {
			return err
		}
		if t.Use != nil {
			t.Use()
		}
		return nil
	})
}

// decode is rest.Result.Into of another text.
func (w *Webhooks) decode(raw []byte, answer runtime.Object) error {
	out, _, err := w.decoder.Decode(raw, nil, answer)
	if err != nil || out == answer {
		return err
	}
	if st, ok := out.(*metav1.Status); ok && st.Status != metav1.StatusSuccess {
		return apierrors.FromObject(st)
	}
	return nil
}

func (w *Webhooks) client(key [sha256.Size]byte, hook *Webhook) (*client, error) {
	if c, ok := w.clients.Get(key); ok {
		c.unused.Reset(unusedClient)
		return c, nil
	}
	c, err := w.connect(hook)
	if err != nil {
		return nil, err
	}
	c.unused = time.AfterFunc(unusedClient, func() { w.clients.Remove(key) })
	if had, ok, _ := w.clients.PeekOrAdd(key, c); ok {
		c.close()
		return had, nil
	}
	return c, nil
}

// key tells apart what is asked in another way.
func (h *Webhook) key() (key [sha256.Size]byte) {
	sum := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(sum, binary.BigEndian, int64(len(b))) // hashes take everything
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

// connect makes the client of a webhook. Redirects are not followed.
func (w *Webhooks) connect(hook *Webhook) (*client, error) {
	config := &rest.Config{
		ContentConfig: rest.ContentConfig{NegotiatedSerializer: w.codec, ContentType: runtime.ContentTypeJSON},
		QPS:           -1,
	}
	t := &transport.Config{UserAgent: webhookAgent, DisableCompression: true, TLS: transport.TLSConfig{CAData: hook.CABundle}}
	switch {
	case hook.Service != nil:
		w.toService(config, t, hook.Service)
	default:
		u, err := url.Parse(hook.URL)
		if err != nil {
			return nil, fmt.Errorf("unable to parse URL: %w", err)
		}
		config.Host, config.APIPath = u.Scheme+"://"+u.Host, u.Path
		t.DialHolder = &transport.DialHolder{Dial: w.config.Ways.To(false)}
	}
	if c, err := w.toSelf(config); c != nil || err != nil {
		return c, err
	}
	base, err := pool(t)
	if err != nil {
		return nil, err
	}
	through, err := transport.HTTPWrappersForConfig(t, base)
	if err != nil {
		return nil, err
	}
	host := strings.TrimPrefix(strings.TrimPrefix(config.Host, "https://"), "http://")
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{
		Transport: &bounded{w.config.Metrics.around(through, host), w.config.MaxAnswer}, Timeout: w.config.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	if err != nil {
		return nil, err
	}
	return &client{RESTClient: c, base: base, forget: w.config.Metrics.hold(host)}, nil
}

// toSelf returns the client of a webhook that is this server, and nil for any other one.
func (w *Webhooks) toSelf(config *rest.Config) (*client, error) {
	at, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	own := InProcess(w.config.Own, at, w.config.MaxAnswer, w.config.Metrics)
	if own == nil {
		return nil, nil
	}
	own.Timeout = w.config.Timeout
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, own)
	if err != nil {
		return nil, err
	}
	return &client{RESTClient: c, forget: w.config.Metrics.hold(at.Host)}, nil
}

// toService leads to a service of the cluster, whose certificate is for its name.
// Where it is is asked with each connection.
func (w *Webhooks) toService(config *rest.Config, t *transport.Config, s *Reference) {
	port := s.Port
	if port == 0 {
		port = defaultPort
	}
	t.TLS.ServerName = s.Name + "." + s.Namespace + ".svc"
	host := net.JoinHostPort(t.TLS.ServerName, strconv.Itoa(int(port)))
	config.Host, config.APIPath = "https://"+host, s.Path
	dial := w.config.Ways.To(true)
	t.DialHolder = &transport.DialHolder{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == host {
			at, err := w.config.Resolve(ctx, s.Namespace, s.Name, port)
			if err != nil {
				return nil, err
			}
			addr = at
		}
		return dial(ctx, network, addr)
	}}
}
