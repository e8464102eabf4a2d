package serving

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"binnacle/libs/serving/tlsfiles"
)

// tlsMaterial selects the current certificate and client CAs for each handshake.
type tlsMaterial struct {
	base    *tls.Config
	pair    *tlsfiles.Pair
	sni     []sniPair
	clients *tlsfiles.Bundle   // of --client-ca-file, or nil
	hinted  []*tlsfiles.Bundle // clients and the extra CAs

	config atomic.Pointer[hintedConfig]
}

type sniPair struct {
	pair  *tlsfiles.Pair
	names []string // the certificate's own names if empty
}

// hintedConfig is base with the client CAs of pools.
type hintedConfig struct {
	pools  []*x509.CertPool
	config *tls.Config
}

func loadTLS(o *Options) (*tlsMaterial, error) {
	m := &tlsMaterial{}
	var err error
	if m.pair, err = tlsfiles.LoadPair(o.CertFile, o.KeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
	}
	for _, n := range o.SNI {
		p, err := tlsfiles.LoadPair(n.CertFile, n.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		m.sni = append(m.sni, sniPair{pair: p, names: n.Names})
	}
	if o.ClientCAFile != "" {
		if m.clients, err = tlsfiles.LoadBundle(o.ClientCAFile); err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		m.hinted = append(m.hinted, m.clients)
	}
	m.hinted = append(m.hinted, o.ExtraClientCAs...)
	m.base = &tls.Config{
		MinVersion:         o.minVersion,
		CipherSuites:       o.cipherSuites,
		GetCertificate:     m.certificate,
		GetConfigForClient: m.configForClient,
		NextProtos:         []string{"h2", "http/1.1"},
		// Small records at the beginning of a connection are meant for pages that render while they
		// load. A watch event of a few KB would take five of them, and as many writes.
		DynamicRecordSizingDisabled: true,
	}
	if o.DisableHTTP2 {
		m.base.NextProtos = []string{"http/1.1"}
	}
	if len(m.hinted) > 0 {
		m.base.ClientAuth = tls.RequestClientCert
	}
	return m, nil
}

// certificates returns the server's certificates and the client CAs.
func (m *tlsMaterial) certificates() []Certificate {
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

// configForClient returns a config that names the accepted issuers to the client. Go clients send
// their certificate only if its issuer is named.
func (m *tlsMaterial) configForClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	if len(m.hinted) == 0 {
		return nil, nil // use base
	}
	pools := make([]*x509.CertPool, len(m.hinted))
	for i, b := range m.hinted {
		pools[i] = b.Pool()
	}
	if c := m.config.Load(); c != nil && slices.Equal(c.pools, pools) {
		return c.config, nil
	}
	config := m.base.Clone()
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

func (m *tlsMaterial) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
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
