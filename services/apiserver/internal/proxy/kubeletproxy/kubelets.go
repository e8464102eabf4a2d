package kubeletproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/proxy/clientcerts"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/proxy/upgrade"
)

// Options configure the connections to kubelets.
type Options struct {
	CertFile, KeyFile, CAFile string
	// Port is the port of kubelets whose node does not specify one.
	Port int
	// Timeout bounds the time to open a connection.
	Timeout time.Duration
	// UpgradeTimeout bounds the wait for the response to a request that upgrades its connection.
	UpgradeTimeout time.Duration
	// AnswerTimeout bounds the wait for the response to any other request.
	AnswerTimeout time.Duration
	// AddressTypes lists the node address types in order of preference.
	AddressTypes []string
	// MaxBytesPerSecond limits the rate of upgraded connections in each direction; 0 means no
	// limit.
	MaxBytesPerSecond int64
	// MaxProxied limits the number of concurrently proxied requests; 0 derives the limit from the
	// number of files that the process may open.
	MaxProxied int
	// MaxPages is the number of pages whose links are rewritten at a time.
	MaxPages int
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{
		Port:           10250,
		Timeout:        5 * time.Second,
		UpgradeTimeout: upgrade.DefaultTimeout,
		AnswerTimeout:  idleTimeout,
		AddressTypes: []string{
			string(corev1.NodeHostName), string(corev1.NodeInternalDNS), string(corev1.NodeInternalIP),
			string(corev1.NodeExternalDNS), string(corev1.NodeExternalIP),
		},
	}
}

// Validate returns the errors of the options.
func (o *Options) Validate() (errs []error) {
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--kubelet-client-certificate and --kubelet-client-key go together"))
	}
	if o.Port < 1 || o.Port > 65535 {
		errs = append(errs, fmt.Errorf("--kubelet-port %d is not a port", o.Port))
	}
	if o.Timeout < 0 {
		errs = append(errs, errors.New("--kubelet-timeout must not be negative"))
	}
	return errs
}

// Upstream connects to kubelets and to workloads on nodes. It is immutable after New and Traced.
type Upstream struct {
	options Options
	// kubelet holds connections to kubelets whose certificates are verified. unverified holds those
	// of requests that skip the verification.
	kubelet, unverified *clientcerts.Pool
	// target holds connections to pods, services and other ports of nodes. Their certificates
	// cannot be verified.
	target  *clientcerts.Pool
	metrics metrics
	pages   *responselimit.PageLimiter
	traces  *tracing.Provider
}

// Traced adds trace headers to requests to kubelets. A nil provider changes nothing. Traced must be
// called before any other method.
func (u *Upstream) Traced(p *tracing.Provider) *Upstream {
	u.traces = p
	return u
}

// New returns an Upstream. It reads the certificates, and reloads the client certificate when it is
// renewed. dial connects to nodes; nil connects directly. The metrics are registered with registerer.
func New(options Options, registerer prometheus.Registerer, dial Dial) (*Upstream, error) {
	// 1. Read the CA that verifies kubelets, and the client certificate.
	verified := &tls.Config{MinVersion: tls.VersionTLS12}
	if options.CAFile == "" {
		verified.InsecureSkipVerify = true
	} else {
		pem, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
		verified.RootCAs = x509.NewCertPool()
		if !verified.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--kubelet-certificate-authority: %s has no certificate", options.CAFile)
		}
	}
	certificate := func() *tls.Certificate { return nil }
	if options.CertFile != "" {
		pair, err := tlsfiles.LoadPair(options.CertFile, options.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
		certificate = clientcerts.ReloadingCertificate(pair)
	}

	// 2. Choose how to connect. Connections to targets must not reach forbidden addresses.
	toKubelet, toTarget := dial, rejectForbiddenAddresses(dial)
	if dial != nil && options.Timeout > 0 {
		toKubelet = func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, options.Timeout)
			defer cancel()
			return dial(ctx, network, addr)
		}
	}
	if dial == nil {
		toKubelet = (&net.Dialer{Timeout: options.Timeout, KeepAlive: 30 * time.Second}).DialContext
		toTarget = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: checkDialedAddress}).DialContext
	}

	// 3. Create the pools of connections.
	newPool := func(security *tls.Config, dial Dial) *clientcerts.Pool {
		return clientcerts.NewPool(certificate, func(getCertificate clientcerts.CertificateFunc) *http.Transport {
			security := security.Clone()
			security.GetClientCertificate = getCertificate
			return options.newTransport(security, dial, options.Timeout)
		})
	}
	unverified := verified.Clone()
	unverified.InsecureSkipVerify = true
	unverified.RootCAs = nil
	return &Upstream{
		options:    options,
		metrics:    newMetrics(registerer),
		pages:      responselimit.NewPageLimiter(options.MaxPages),
		kubelet:    newPool(verified, toKubelet),
		unverified: newPool(unverified, toKubelet),
		target: clientcerts.Fixed(options.newTransport(&tls.Config{
			InsecureSkipVerify: true,
			MinVersion:         tls.VersionTLS12,
		}, toTarget, 10*time.Second)),
	}, nil
}

// maxIdle is the maximum number of idle connections per pool. The limit is necessary because
// authors of pods can make the server connect to any number of addresses and ports.
const maxIdle = 500

// newTransport returns a transport that connects with dial. handshake bounds the TLS handshake.
func (o *Options) newTransport(c *tls.Config, dial Dial, handshake time.Duration) *http.Transport {
	return &http.Transport{
		TLSClientConfig:        c,
		DialContext:            dialWithRequest(dial),
		DialTLSContext:         dialTLSWithRequest(dial, c, handshake),
		TLSHandshakeTimeout:    handshake,
		MaxResponseHeaderBytes: responselimit.MaxHead,
		ResponseHeaderTimeout:  o.AnswerTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    25,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
	}
}

// Close closes idle connections.
func (u *Upstream) Close() {
	for _, t := range []*clientcerts.Pool{u.kubelet, u.unverified, u.target} {
		t.CloseIdleConnections()
	}
}

// Location returns the host and port of a kubelet.
func (u *Upstream) Location(node *corev1.Node) (host, port string, err error) {
	kubeletPort := u.options.Port
	if p := node.Status.DaemonEndpoints.KubeletEndpoint.Port; p > 0 {
		kubeletPort = int(p)
	}
	for _, kind := range u.options.AddressTypes {
		for _, a := range node.Status.Addresses {
			if string(a.Type) == kind {
				return a.Address, strconv.Itoa(kubeletPort), nil
			}
		}
	}
	return "", "", fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses)
}

// ErrAddressNotAllowed rejects loopback, link-local and multicast addresses of targets.
var ErrAddressNotAllowed = errors.New("address not allowed")

// Allowed reports whether connections to a target's address are allowed.
func Allowed(ip net.IP) bool { return ip != nil && ip.IsGlobalUnicast() }

// CheckHost rejects a host that resolves to an address that is not allowed.
func CheckHost(ctx context.Context, host string) error {
	if ip := net.ParseIP(host); ip != nil {
		if !Allowed(ip) {
			return ErrAddressNotAllowed
		}
		return nil
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("no addresses for hostname")
	}
	for _, a := range found {
		if !Allowed(a.IP) {
			return ErrAddressNotAllowed
		}
	}
	return nil
}

// Dial connects to host:port.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// rejectForbiddenAddresses returns a dial function that rejects addresses that are not allowed. It
// does not resolve names; dial does.
func rejectForbiddenAddresses(dial Dial) Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		ip, parseErr := netip.ParseAddr(host) // including a zone
		if err != nil || parseErr == nil && !Allowed(ip.AsSlice()) {
			return nil, ErrAddressNotAllowed
		}
		return dial(ctx, network, addr)
	}
}

// checkDialedAddress checks each address again before a connection is opened: a name may resolve
// differently than before, and objects may contain any address.
func checkDialedAddress(_, address string, _ syscall.RawConn) error {
	addrPort, err := netip.ParseAddrPort(address)
	if err != nil || !Allowed(addrPort.Addr().AsSlice()) {
		return ErrAddressNotAllowed
	}
	return nil
}
