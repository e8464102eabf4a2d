package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

// ServerOptions configure the TLS of a server.
type ServerOptions struct {
	CertFile, KeyFile string
	SNI               []NamedPair
	ClientCAFile      string // empty for none
	// ExtraClientCAs are further CAs that the server names to clients as accepted issuers.
	ExtraClientCAs []*Bundle
	MinVersion     uint16
	CipherSuites   []uint16
	Protocols      []string // of ALPN
}

// NamedPair is a certificate for some server names.
type NamedPair struct {
	CertFile, KeyFile string
	// Names lists the server names. If empty, the names in the certificate apply.
	Names []string
}

// Server selects the current certificate and client CAs for each handshake.
type Server struct {
	// Config is the configuration of the server.
	Config *tls.Config

	pair    *Pair
	sni     []sniPair
	clients *Bundle   // nil if there is no ClientCAFile
	hinted  []*Bundle // clients and the extra CAs

	config atomic.Pointer[hintedConfig]
}

// sniPair is a certificate for some server names.
type sniPair struct {
	pair  *Pair
	names []string // the certificate's own names if empty
}

// hintedConfig is Config with the client CAs of pools.
type hintedConfig struct {
	pools  []*x509.CertPool
	config *tls.Config
}

// LoadServer loads the files of a server. Errors name its flags.
func LoadServer(o ServerOptions) (*Server, error) {
	m := &Server{}
	var err error
	if m.pair, err = LoadPair(o.CertFile, o.KeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
	}
	for _, n := range o.SNI {
		p, err := LoadPair(n.CertFile, n.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		m.sni = append(m.sni, sniPair{pair: p, names: n.Names})
	}
	if o.ClientCAFile != "" {
		if m.clients, err = LoadBundle(o.ClientCAFile); err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		m.hinted = append(m.hinted, m.clients)
	}
	m.hinted = append(m.hinted, o.ExtraClientCAs...)
	m.Config = &tls.Config{
		MinVersion:         o.MinVersion,
		CipherSuites:       o.CipherSuites,
		GetCertificate:     m.certificate,
		GetConfigForClient: m.configForClient,
		NextProtos:         o.Protocols,
		// Small records at the beginning of a connection are meant for pages that render while they
		// load. A watch event of a few KB would take five of them, and as many writes.
		DynamicRecordSizingDisabled: true,
	}
	if len(m.hinted) > 0 {
		m.Config.ClientAuth = tls.RequestClientCert
	}
	return m, nil
}

// Certificates returns the server's certificates and the client CAs.
func (m *Server) Certificates() []Certificate {
	out := []Certificate{{Use: "serving", Source: m.pair}}
	for _, s := range m.sni {
		out = append(out, Certificate{Use: "sni", Source: s.pair})
	}
	for _, b := range m.hinted {
		use := "request-header-ca"
		if b == m.clients {
			use = "client-ca"
		}
		out = append(out, Certificate{Use: use, Source: b})
	}
	return out
}

// ClientCAs returns the bundle of ClientCAFile, or nil.
func (m *Server) ClientCAs() *Bundle { return m.clients }

// configForClient returns a config that names the accepted issuers to the client. Go clients send
// their certificate only if its issuer is named.
func (m *Server) configForClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	if len(m.hinted) == 0 {
		return nil, nil // use Config
	}
	pools := make([]*x509.CertPool, len(m.hinted))
	for i, b := range m.hinted {
		pools[i] = b.Pool()
	}
	if c := m.config.Load(); c != nil && slices.Equal(c.pools, pools) {
		return c.config, nil
	}
	config := m.Config.Clone()
	config.GetConfigForClient = nil
	config.ClientCAs = x509.NewCertPool()
	for _, b := range m.hinted {
		for _, c := range b.Certificates() {
			config.ClientCAs.AddCert(c)
		}
	}
	m.config.Store(&hintedConfig{pools: pools, config: config})
	return config, nil
}

// certificate returns the certificate for the server name of a client.
func (m *Server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(m.sni) > 0 {
		name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
		if name == "" && hello.Conn != nil {
			// A client that connects to an address sends no name.
			name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
		}
		for _, s := range m.sni {
			if s.serves(name) {
				return s.pair.Certificate(), nil
			}
		}
	}
	return m.pair.Certificate(), nil
}

// serves reports whether the certificate is meant for a server name.
func (s sniPair) serves(name string) bool {
	if name == "" {
		return false
	}
	if len(s.names) == 0 {
		return s.pair.Certificate().Leaf.VerifyHostname(name) == nil
	}
	_, parent, _ := strings.Cut(name, ".")
	return slices.Contains(s.names, name) || (parent != "" && slices.Contains(s.names, "*."+parent))
}
