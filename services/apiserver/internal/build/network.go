package build

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"

	"github.com/prometheus/client_golang/prometheus"
	apiserverinternalv1alpha1 "k8s.io/api/apiserverinternal/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/kubeclient"
	"binnacle/libs/serving"
	"binnacle/libs/serving/health"
	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/controllers/statuses"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/server/peers"
)

// listener is the bound port, with the HTTP server that later serves requests on it.
type listener struct {
	server *serving.Server
	health *health.Registry
	// port is the bound port. It differs from the configured one if that is 0.
	port int
	// address is the host:port at which clients reach this server.
	address string
}

// newListener binds the port. build calls it first, so that the server fails immediately if the
// port is in use.
func newListener(options *config.Options, log *slog.Logger, metrics *prometheus.Registry, lifetime *lifecycle) (*listener, error) {
	clients, err := clientCertificates(options)
	if err != nil {
		return nil, err
	}
	result := &listener{health: health.New(health.Config{LivezGracePeriod: options.Serving.LivezGracePeriod, Logger: log})}
	result.server, err = serving.NewServer(serving.Config{
		Options:         options.Serving,
		Logger:          log,
		Health:          result.health,
		Clients:         clients,
		Metrics:         metrics,
		HandshakeErrors: telemetry.NewHandshakeErrors(metrics),
	})
	if err != nil {
		return nil, err
	}
	lifetime.onClose(func() { _ = result.server.Close() })
	result.port = options.Serving.SecurePort
	if bound, ok := result.server.Addr().(*net.TCPAddr); ok {
		result.port = bound.Port
	}
	result.address = advertisedAddress(options, result.port)
	return result, nil
}

// advertisedAddress returns the host:port at which clients reach this server.
func advertisedAddress(options *config.Options, port int) string {
	host := options.ExternalHostname
	if host == "" {
		return net.JoinHostPort(options.AdvertiseAddress.String(), strconv.Itoa(port))
	}
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

// clientCertificates returns the client certificates of this server and the CAs that it trusts, for
// metrics of their expiry. The clients themselves read the files separately.
func clientCertificates(options *config.Options) ([]tlsfiles.Certificate, error) {
	var certificates []tlsfiles.Certificate
	for _, files := range []struct{ use, ca, cert, key, caFlag, certFlag string }{
		{
			use:      "etcd",
			ca:       options.Etcd.CAFile,
			cert:     options.Etcd.CertFile,
			key:      options.Etcd.KeyFile,
			caFlag:   "--etcd-cafile",
			certFlag: "--etcd-certfile, --etcd-keyfile",
		},
		{
			use:      "nats",
			ca:       options.Fanout.CAFile,
			cert:     options.Fanout.CertFile,
			key:      options.Fanout.KeyFile,
			caFlag:   "--nats-ca-file",
			certFlag: "--nats-cert-file, --nats-key-file",
		},
	} {
		if files.cert != "" {
			pair, err := tlsfiles.LoadPair(files.cert, files.key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", files.certFlag, err)
			}
			certificates = append(certificates, tlsfiles.Certificate{Use: files.use + "-client", Source: pair})
		}
		if files.ca != "" {
			bundle, err := tlsfiles.LoadBundle(files.ca)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", files.caFlag, err)
			}
			certificates = append(certificates, tlsfiles.Certificate{Use: files.use + "-ca", Source: bundle})
		}
	}
	for _, files := range []struct{ use, kubeconfig, flag string }{
		{
			use:        "authentication-webhook",
			kubeconfig: options.Authentication.Webhook.Kubeconfig,
			flag:       "--authentication-token-webhook-config-file",
		},
		{use: "authorization-webhook", kubeconfig: options.Authorization.WebhookConfigFile, flag: "--authorization-webhook-config-file"},
	} {
		if files.kubeconfig == "" {
			continue
		}
		certs, err := kubeclient.CertificatesOf(files.use, files.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files.flag, err)
		}
		certificates = append(certificates, certs...)
	}
	return certificates, nil
}

// network holds the means to connect to webhooks and to services of the cluster.
type network struct {
	services *webhookclient.Services
	dialers  webhookclient.Dialers
}

// newNetwork creates the connections to webhooks and services. handler returns the handler of all
// requests, which is created later. It serves webhooks that this server itself implements.
// aggregatorRouting connects to the endpoints of services instead of their cluster IPs.
func newNetwork(base *base, caches *caches, aggregatorRouting bool, handler func() http.Handler) *network {
	objects := &lister.Objects{Cache: caches.cache}
	services := caches.core("services")
	webhookServices := &webhookclient.Services{
		LocalAddress: base.address,
		Internal:     internalclient.Transport{Handler: handler},
		Get: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return lister.Get[*corev1.Service](ctx, objects, &services, namespace, name)
		},
	}
	if aggregatorRouting {
		endpoints := caches.core("endpoints")
		webhookServices.Endpoints = func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, objects, &endpoints, namespace, name)
		}
	}
	return &network{
		services: webhookServices,
		dialers:  webhookclient.Dialers{Cluster: clusterDial(base), URLs: base.egress.DialerFor(egress.ControlPlane)},
	}
}

// clusterDial returns the dialer for services of the cluster, or nil if connections need no proxy.
// This server is also such a service. The dialer connects to it directly, because the proxy may not
// reach it.
func clusterDial(base *base) webhookclient.Dial {
	dial := base.egress.DialerFor(egress.Cluster)
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == base.address {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		return dial(ctx, network, addr)
	}
}

// delegates holds the connections to the servers that handle requests that this server does not
// serve.
type delegates struct {
	client          *internalclient.Client
	proxyClientCert *tlsfiles.Pair // nil if not configured
	extensions      *aggregation.Aggregator
	// presence publishes the address of this replica, and peers proxies requests to other replicas.
	// They are nil if disabled.
	presence *peers.Presence
	peers    *peers.Peers
}

// newDelegates creates the connections to extension servers and peers. acquireSlot acquires a slot
// for a proxied request; see aggregation.Config.AcquireSlot.
func newDelegates(
	base *base,
	options *config.Options,
	caches *caches,
	stores *stores,
	sets *apiSets,
	network *network,
	acquireSlot func(*http.Request) (func(), error),
) (*delegates, error) {
	result := &delegates{client: sets.client}
	var err error
	if result.proxyClientCert, err = loadProxyClient(&options.Aggregation); err != nil {
		return nil, err
	}
	if result.proxyClientCert != nil {
		base.lifetime.whileServing("certificate for extension servers and peers", func(ctx context.Context) error {
			return tlsfiles.Watch(ctx, base.log, result.proxyClientCert)
		})
	}
	result.addExtensions(base, options, caches, sets.kinds, network, acquireSlot)
	return result, result.addPeers(base, options, caches, stores, sets.respond.Error)
}

// certificate returns the client certificate for extension servers and peers, or nil if there is
// none.
func (d *delegates) certificate() *tls.Certificate {
	if d.proxyClientCert == nil {
		return nil
	}
	return d.proxyClientCert.Certificate()
}

// forOtherServers returns the delegates for requests that this server does not serve.
func (d *delegates) forOtherServers() routing.Delegates {
	return routing.Delegates{Extension: d.extensions.Handler, Peer: d.peer}
}

// peer returns a handler that proxies a request to another replica that serves the resource, or nil
// if there is none.
func (d *delegates) peer(r *http.Request, info *requestinfo.Info) http.Handler {
	if d.peers == nil {
		return nil
	}
	return d.peers.Handler(r, info)
}

// addExtensions creates the aggregator of extension servers.
func (d *delegates) addExtensions(
	base *base,
	options *config.Options,
	caches *caches,
	kinds *apiset.Live,
	network *network,
	acquireSlot func(*http.Request) (func(), error),
) {
	registered := caches.lookup(apiServiceResource())
	objects := &lister.Objects{Cache: caches.cache}
	services := caches.core("services")
	endpoints := caches.core("endpoints")
	d.extensions = aggregation.New(aggregation.Config{
		Store:  registered.Store,
		Decode: lister.EntryDecoder[*apiregistrationv1.APIService](registered.Coder),
		Local:  func(gv schema.GroupVersion) bool { return kinds.Current().BuiltIns().Serves(gv) },
		Service: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return lister.Get[*corev1.Service](ctx, objects, &services, namespace, name)
		},
		Endpoints: func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, objects, &endpoints, namespace, name)
		},
		Resolve:         network.services.Resolve,
		Dial:            network.dialers.Cluster,
		Certificate:     d.certificate,
		MaxRequests:     options.Requests.MaxPerServer(),
		MaxChecks:       options.Bounds.MaxConcurrentServerChecks,
		MaxPages:        options.Bounds.MaxRewrittenPages,
		AcquireSlot:     acquireSlot,
		FollowRedirects: !options.Aggregation.RejectRedirects,
		Write: func(ctx context.Context, name string, c apiregistrationv1.APIServiceCondition) error {
			return statuses.WriteAvailable(ctx, d.client, name, c)
		},
		Metrics: aggregation.NewMetrics(base.metrics),
		Traces:  base.traces,
		Logger:  base.log,
		Now:     time.Now,
	})
	base.lifetime.whileServing("extension servers", d.extensions.Run)
	for _, kind := range []lister.CachedResource{services, endpoints} {
		base.lifetime.whileServing(kind.Resource.Resource+" of extension servers", func(ctx context.Context) error {
			return informer.FollowNames(ctx, kind.Store, d.extensions.ServiceChanged)
		})
	}
}

// loadProxyClient loads the client certificate for extension servers and peers. It returns nil if
// it is not configured.
func loadProxyClient(options *config.AggregationOptions) (*tlsfiles.Pair, error) {
	files := options.ProxyClient
	switch {
	case files.CertFile == "" && files.KeyFile == "":
		return nil, nil
	case files.CertFile == "" || files.KeyFile == "":
		return nil, errors.New("--proxy-client-cert-file and --proxy-client-key-file have to be given together")
	}
	pair, err := tlsfiles.LoadPair(files.CertFile, files.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	return pair, nil
}

func apiServiceResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: apiregistrationv1.GroupName, Version: "v1", Resource: "apiservices"}
}

// addPeers creates the publisher of this replica's address and the proxy to other replicas, if the
// feature gate is enabled. The proxy also needs --peer-ca-file. reject responds with an error.
func (d *delegates) addPeers(
	base *base,
	options *config.Options,
	caches *caches,
	stores *stores,
	reject func(http.ResponseWriter, *http.Request, error),
) (err error) {
	if !base.gates.Enabled(features.UnknownVersionInteroperabilityProxy) {
		return nil
	}
	coder := caches.core("endpoints").Coder
	port := base.port
	if options.Aggregation.Peers.AdvertisePort != "" {
		if port, err = strconv.Atoi(options.Aggregation.Peers.AdvertisePort); err != nil {
			return fmt.Errorf("--peer-advertise-port: %w", err)
		}
	}
	d.presence = &peers.Presence{
		Store:    stores.store,
		Root:     base.root,
		Identity: base.identity,
		Logger:   base.log,
		IP:       net.ParseIP(cmp.Or(options.Aggregation.Peers.AdvertiseIP, options.AdvertiseAddress.String())),
		Port:     port,
		Encode:   func(e *corev1.Endpoints) ([]byte, error) { return coder.EncodeStored(e) },
		Decode:   lister.Decoder[*corev1.Endpoints](coder),
	}
	base.lifetime.whileServing("presence for peers", d.presence.Run)
	if options.Aggregation.Peers.CAFile == "" {
		return nil
	}
	authorities, err := tlsfiles.LoadBundle(options.Aggregation.Peers.CAFile)
	if err != nil {
		return fmt.Errorf("--peer-ca-file: %w", err)
	}
	versions := caches.lookup(apiserverinternalv1alpha1.SchemeGroupVersion.WithResource("storageversions"))
	leases := caches.lookup(coordinationv1.SchemeGroupVersion.WithResource("leases"))
	d.peers = peers.New(peers.Config{
		Identity:    base.identity,
		Store:       versions.Store,
		Addresses:   d.presence.Addresses,
		Authorities: authorities.Pool,
		Decode:      lister.EntryDecoder[*apiserverinternalv1alpha1.StorageVersion](versions.Coder),
		Exists: func(identity string) bool { // a replica exists while it has a lease
			_, ok := leases.Store.Get(leases.Prefix + metav1.NamespaceSystem + "/" + identity)
			return ok
		},
		Certificate: d.certificate,
		MaxRequests: options.Requests.MaxPerServer(),
		MaxPages:    options.Bounds.MaxRewrittenPages,
		Reject:      reject,
		Metrics:     peers.NewMetrics(base.metrics),
		Traces:      base.traces,
		Logger:      base.log,
	})
	base.lifetime.whileServing("peers", d.peers.Run)
	base.lifetime.whileServing("authorities of peers", func(ctx context.Context) error {
		return tlsfiles.Watch(ctx, base.log, authorities)
	})
	return nil
}
