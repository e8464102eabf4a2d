package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"binnacle/libs/options"
	"binnacle/libs/serving/tlsfiles"
)

const (
	defaultCertDir        = "/var/run/kubernetes"
	defaultMaxStreams     = 250
	defaultRequestTimeout = 60 * time.Second
	defaultStallTimeout   = 15 * time.Second
	maxInterfaceAddresses = 16
	defaultMaxResets      = 500
)

// Options configures a server. NewOptions sets the defaults. Flags and the caller change them
// before Complete.
type Options struct {
	// PairName names the files of the self-signed pair in CertDir: <PairName>.crt and
	// <PairName>.key.
	PairName string

	BindAddress       net.IP
	SecurePort        int // 0 selects any free port
	CertFile, KeyFile string
	CertDir           string
	MinTLSVersion     string
	CipherSuites      []string
	SNI               []tlsfiles.NamedPair
	MaxHTTP2Streams   int
	DisableHTTP2      bool
	// MaxResetsPerAddress is the number of streams that the connections of an address may reset
	// together in a second.
	MaxResetsPerAddress int
	// HTTP2Implementation is "own" or "standard".
	HTTP2Implementation string
	PermitPortSharing   bool
	PermitAddrSharing   bool
	ClientCAFile        string
	ShutdownDelay       time.Duration
	ShutdownRetryAfter  bool
	// WatchGrace is how long a shutdown waits for long-running requests to end after
	// LongRunningStop. Values below 5 s have no effect.
	WatchGrace       time.Duration
	LivezGracePeriod time.Duration
	// StallTimeout is how long a client may send nothing while the server waits for a body, or read
	// nothing of a response. Requests that call exchange.LimitStall get twice that time.
	StallTimeout time.Duration

	// AdvertiseAddress and AlternateNames are additional names of a self-signed certificate.
	AdvertiseAddress net.IP
	AlternateNames   []string
	// RequestTimeout limits the time for a body and how long a shutdown waits for requests.
	// RequestTimeout plus StallTimeout is the time after which slow responses are aborted.
	RequestTimeout time.Duration
	// ExtraClientCAs are further CAs, such as the front proxy's, that the server names to clients
	// as accepted issuers. The server reloads their files.
	ExtraClientCAs []*tlsfiles.Bundle

	minVersion   uint16
	cipherSuites []uint16
}

// The values of --http2-implementation.
const (
	http2Own      = "own"
	http2Standard = "standard"
)

// responseTimeout returns the time after which a response is aborted if its client reads slowly, or
// 0 for no limit.
func (o *Options) responseTimeout() time.Duration {
	if o.RequestTimeout <= 0 {
		return 0
	}
	return o.RequestTimeout + o.StallTimeout
}

// tls returns the part of the options that configures TLS.
func (o *Options) tls() tlsfiles.ServerOptions {
	protocols := []string{"h2", "http/1.1"}
	if o.DisableHTTP2 {
		protocols = protocols[1:]
	}
	return tlsfiles.ServerOptions{
		CertFile: o.CertFile, KeyFile: o.KeyFile, SNI: o.SNI, ClientCAFile: o.ClientCAFile, ExtraClientCAs: o.ExtraClientCAs,
		MinVersion: o.minVersion, CipherSuites: o.cipherSuites, Protocols: protocols,
	}
}

// NewOptions returns the default options. pairName names the files of the self-signed pair; port is
// the default of --secure-port.
func NewOptions(pairName string, port int) *Options {
	return &Options{
		PairName:            pairName,
		BindAddress:         net.IPv4zero,
		SecurePort:          port,
		CertDir:             defaultCertDir,
		MaxHTTP2Streams:     defaultMaxStreams,
		HTTP2Implementation: http2Own,
		MaxResetsPerAddress: defaultMaxResets,
		RequestTimeout:      defaultRequestTimeout,
		StallTimeout:        defaultStallTimeout,
	}
}

// AddFlags adds the flags to the sections "generic", "secure serving" and "authentication".
func (o *Options) AddFlags(sections *options.Sections) {
	flags := sections.Set("generic")
	flags.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"How long to keep serving after SIGTERM; /readyz fails during that time.")
	flags.BoolVar(&o.ShutdownRetryAfter, "shutdown-send-retry-after", o.ShutdownRetryAfter,
		"Keep listening while requests in flight complete, and reject new ones with 429 and Retry-After.")
	flags.DurationVar(&o.WatchGrace, "shutdown-watch-termination-grace-period", o.WatchGrace,
		"How long a shutdown waits for watches to end, at least 5s.")
	flags.DurationVar(&o.StallTimeout, "stalled-client-timeout", o.StallTimeout,
		"How long a client may send no part of a request body or read no part of a response before the request is aborted; twice that for watches.")
	flags.DurationVar(&o.LivezGracePeriod, "livez-grace-period", o.LivezGracePeriod, "Startup period in which /livez always passes.")

	flagSet := sections.Set("secure serving")
	flagSet.IPVar(&o.BindAddress, "bind-address", o.BindAddress, "Address to listen on; 0.0.0.0 or :: for all interfaces.")
	flagSet.IntVar(&o.SecurePort, "secure-port", o.SecurePort, "Port for HTTPS; 0 selects any free port.")
	flagSet.StringVar(&o.CertFile, "tls-cert-file", o.CertFile,
		"PEM file with the certificate chain for HTTPS, the server's certificate first; without this and --tls-private-key-file, a self-signed pair is created in --cert-dir.")
	flagSet.StringVar(&o.KeyFile, "tls-private-key-file", o.KeyFile, "PEM file with the private key of --tls-cert-file.")
	flagSet.StringVar(&o.CertDir, "cert-dir", o.CertDir,
		fmt.Sprintf("Folder of the self-signed pair, %s.crt and %s.key.", o.PairName, o.PairName))
	flagSet.StringVar(&o.MinTLSVersion, "tls-min-version", o.MinTLSVersion,
		"Lowest TLS version: "+tlsVersionNames()+". (default VersionTLS12)")
	flagSet.StringSliceVar(&o.CipherSuites, "tls-cipher-suites", o.CipherSuites,
		"IANA names of the cipher suites for TLS 1.2; empty for Go's defaults.")
	flagSet.IntVar(&o.MaxHTTP2Streams, "http2-max-streams-per-connection", o.MaxHTTP2Streams,
		"Maximum number of requests in flight on one HTTP/2 connection.")
	flagSet.BoolVar(&o.DisableHTTP2, "disable-http2-serving", o.DisableHTTP2, "Serve HTTP/1.1 only.")
	flagSet.IntVar(&o.MaxResetsPerAddress, "http2-max-resets-per-address", o.MaxResetsPerAddress,
		"Number of HTTP/2 streams per second that all connections of one client address may reset before they are read more slowly; raise it for a proxy with many users.")
	flagSet.StringVar(&o.HTTP2Implementation, "http2-implementation", o.HTTP2Implementation,
		"HTTP/2 server: own, which uses less CPU and no goroutine for an idle watch, or standard, which is that of net/http.")
	flagSet.BoolVar(&o.PermitPortSharing, "permit-port-sharing", o.PermitPortSharing,
		"Listen with SO_REUSEPORT, so that several processes can share the port.")
	flagSet.BoolVar(&o.PermitAddrSharing, "permit-address-sharing", o.PermitAddrSharing,
		"Listen with SO_REUSEADDR, so that the port can be bound while old connections are in TIME_WAIT.")
	flagSet.Var(&namedPairs{list: &o.SNI}, "tls-sni-cert-key",
		"Additional certificate as CERT,KEY or CERT,KEY:NAME,NAME..., served to clients that request one of the names (*.suffix allowed); may be repeated.")

	a := sections.Set("authentication")
	a.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, "CA bundle that verifies client certificates.")
}

// Complete resolves TLS names, and creates the self-signed pair if no certificate is configured.
func (o *Options) Complete() error {
	var err error
	if o.minVersion, err = tlsVersion(o.MinTLSVersion); err != nil {
		return err
	}
	if o.cipherSuites, err = cipherSuiteIDs(o.CipherSuites); err != nil {
		return err
	}
	if o.CertFile != "" || o.KeyFile != "" {
		return nil
	}
	dns, ips, err := o.names()
	if err != nil {
		return err
	}
	o.CertFile, o.KeyFile, err = tlsfiles.LoadOrCreateSelfSigned(tlsfiles.SelfSigned{
		Dir: o.CertDir, Name: o.PairName, DNS: dns, IPs: ips,
	})
	return err
}

// Validate implements options.Options.
func (o *Options) Validate() []error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.SecurePort >= 0 && o.SecurePort <= 65535, "--secure-port %d is not between 0 and 65535", o.SecurePort)
	check((o.CertFile == "") == (o.KeyFile == ""), "--tls-cert-file and --tls-private-key-file go together")
	check(o.MaxHTTP2Streams > 0, "--http2-max-streams-per-connection must be positive, got %d", o.MaxHTTP2Streams)
	check(o.MaxResetsPerAddress > 0, "--http2-max-resets-per-address must be positive, got %d", o.MaxResetsPerAddress)
	check(o.HTTP2Implementation == http2Own || o.HTTP2Implementation == http2Standard,
		"--http2-implementation must be own or standard, got %q", o.HTTP2Implementation)
	check(o.ShutdownDelay >= 0, "--shutdown-delay-duration must not be negative, got %v", o.ShutdownDelay)
	check(o.StallTimeout > 0, "--stalled-client-timeout must be positive, got %v", o.StallTimeout)
	check(o.LivezGracePeriod >= 0, "--livez-grace-period must not be negative, got %v", o.LivezGracePeriod)
	return errs
}

// names returns the host names and addresses of a self-signed certificate, sorted and without
// duplicates.
func (o *Options) names() (dns []string, ips []net.IP, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("find the host's name: %w", err)
	}
	dns = append([]string{"localhost", strings.ToLower(host)}, o.AlternateNames...)
	ips = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if o.AdvertiseAddress != nil {
		ips = append(ips, o.AdvertiseAddress)
	}
	if o.BindAddress.IsUnspecified() {
		ips = append(ips, interfaceAddresses()...)
	} else {
		ips = append(ips, o.BindAddress)
	}
	slices.Sort(dns)
	dns = slices.DeleteFunc(slices.Compact(dns), func(name string) bool { return strings.ContainsAny(name, "_ ") })
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	return dns, slices.CompactFunc(ips, net.IP.Equal), nil
}

// interfaceAddresses returns the global addresses of the host, at most maxInterfaceAddresses.
func interfaceAddresses() []net.IP {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the names above are sufficient
	}
	return globalAddresses(addrs)
}

// globalAddresses returns the global unicast addresses, at most maxInterfaceAddresses.
func globalAddresses(addrs []net.Addr) []net.IP {
	var ips []net.IP
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(ips) < maxInterfaceAddresses {
			ips = append(ips, n.IP)
		}
	}
	return ips
}

func tlsVersions() map[string]uint16 {
	return map[string]uint16{
		"VersionTLS10": tls.VersionTLS10,
		"VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13,
	}
}

// tlsVersionNames returns the values of --tls-min-version for messages.
func tlsVersionNames() string {
	return strings.Join(slices.Sorted(maps.Keys(tlsVersions())), ", ")
}

// tlsVersion parses --tls-min-version; empty means TLS 1.2.
func tlsVersion(name string) (uint16, error) {
	if name == "" {
		return tls.VersionTLS12, nil
	}
	if v, ok := tlsVersions()[name]; ok {
		return v, nil
	}
	return 0, fmt.Errorf("--tls-min-version: unknown version %q, want one of %s", name, tlsVersionNames())
}

// shortCipherNames maps the old names of cipher suites that Kubernetes accepts to their IANA names.
func shortCipherNames() map[string]string {
	return map[string]string{
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

// cipherSuiteIDs parses --tls-cipher-suites.
func cipherSuiteIDs(names []string) ([]uint16, error) {
	all := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	var ids []uint16
	for _, name := range names {
		if full, ok := shortCipherNames()[name]; ok {
			name = full
		}
		i := slices.IndexFunc(all, func(c *tls.CipherSuite) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--tls-cipher-suites: unknown cipher suite %q", name)
		}
		ids = append(ids, all[i].ID)
	}
	return ids, nil
}

// namedPairs is the flag value of --tls-sni-cert-key.
type namedPairs struct{ list *[]tlsfiles.NamedPair }

// Type implements pflag.Value.
func (n *namedPairs) Type() string { return "cert,key[:name,...]" }

// String implements pflag.Value.
func (n *namedPairs) String() string {
	var out []string
	for _, p := range *n.list {
		s := p.CertFile + "," + p.KeyFile
		if len(p.Names) > 0 {
			s += ":" + strings.Join(p.Names, ",")
		}
		out = append(out, s)
	}
	return strings.Join(out, ";")
}

// Set implements pflag.Value. It adds a pair.
func (n *namedPairs) Set(value string) error {
	files, names, hasNames := strings.Cut(value, ":")
	cert, key, _ := strings.Cut(files, ",")
	if cert == "" || key == "" || strings.Contains(key, ",") {
		return errors.New("want CERT,KEY or CERT,KEY:NAME,NAME")
	}
	namedPair := tlsfiles.NamedPair{CertFile: cert, KeyFile: key}
	if hasNames {
		for _, name := range strings.Split(names, ",") {
			if name == "" {
				return errors.New("a name is empty")
			}
			namedPair.Names = append(namedPair.Names, strings.ToLower(name))
		}
	}
	*n.list = append(*n.list, namedPair)
	return nil
}
