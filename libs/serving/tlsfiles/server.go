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

	pair        *Pair
	sni         []sniPair
	clients     *Bundle   // nil if there is no ClientCAFile
	acceptedCAs []*Bundle // clients and the extra CAs

	config atomic.Pointer[configWithCAs]
}

// sniPair is a certificate for some server names.
type sniPair struct {
	pair  *Pair
	names []string // the certificate's own names if empty
}

// configWithCAs is Server.Config with the CAs of pools as accepted issuers.
type configWithCAs struct {
	pools  []*x509.CertPool
	config *tls.Config
}

// LoadServer loads the files of a server. Errors name its flags.
func LoadServer(serverOptions ServerOptions) (*Server, error) {
	server := &Server{}
	var err error
	if server.pair, err = LoadPair(serverOptions.CertFile, serverOptions.KeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
	}
	for _, namedPair := range serverOptions.SNI {
		pair, err := LoadPair(namedPair.CertFile, namedPair.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		server.sni = append(server.sni, sniPair{pair: pair, names: namedPair.Names})
	}
	if serverOptions.ClientCAFile != "" {
		if server.clients, err = LoadBundle(serverOptions.ClientCAFile); err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		server.acceptedCAs = append(server.acceptedCAs, server.clients)
	}
	server.acceptedCAs = append(server.acceptedCAs, serverOptions.ExtraClientCAs...)
	server.Config = &tls.Config{
		MinVersion:         serverOptions.MinVersion,
		CipherSuites:       serverOptions.CipherSuites,
		GetCertificate:     server.selectCertificate,
		GetConfigForClient: server.configForClient,
		NextProtos:         serverOptions.Protocols,
		// Small records at the start of a connection are meant for pages that render while they
		// load. A watch event of a few KB would take five of them, and as many writes.
		DynamicRecordSizingDisabled: true,
	}
	if len(server.acceptedCAs) > 0 {
		server.Config.ClientAuth = tls.RequestClientCert
	}
	return server, nil
}

// Certificates returns the server's certificates and the client CAs.
func (s *Server) Certificates() []Certificate {
	out := []Certificate{{Use: "serving", Source: s.pair}}
	for _, named := range s.sni {
		out = append(out, Certificate{Use: "sni", Source: named.pair})
	}
	for _, b := range s.acceptedCAs {
		use := "request-header-ca"
		if b == s.clients {
			use = "client-ca"
		}
		out = append(out, Certificate{Use: use, Source: b})
	}
	return out
}

// ClientCAs returns the bundle of ClientCAFile, or nil.
func (s *Server) ClientCAs() *Bundle { return s.clients }

// configForClient returns a config that names the accepted issuers to the client. Go clients send
// their certificate only if its issuer is named.
func (s *Server) configForClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	if len(s.acceptedCAs) == 0 {
		return nil, nil // use Config
	}
	pools := make([]*x509.CertPool, len(s.acceptedCAs))
	for i, b := range s.acceptedCAs {
		pools[i] = b.Pool()
	}
	if c := s.config.Load(); c != nil && slices.Equal(c.pools, pools) {
		return c.config, nil
	}
	config := s.Config.Clone()
	config.GetConfigForClient = nil
	config.ClientCAs = x509.NewCertPool()
	for _, b := range s.acceptedCAs {
		for _, c := range b.Certificates() {
			config.ClientCAs.AddCert(c)
		}
	}
	s.config.Store(&configWithCAs{pools: pools, config: config})
	return config, nil
}

// selectCertificate returns the certificate for the server name of a client.
func (s *Server) selectCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if len(s.sni) > 0 {
		name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
		if name == "" && hello.Conn != nil {
			// A client that connects to an address sends no name.
			name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
		}
		for _, candidate := range s.sni {
			if candidate.matchesName(name) {
				return candidate.pair.Certificate(), nil
			}
		}
	}
	return s.pair.Certificate(), nil
}

// matchesName reports whether the certificate is meant for a server name.
func (s sniPair) matchesName(name string) bool {
	if name == "" {
		return false
	}
	if len(s.names) == 0 {
		return s.pair.Certificate().Leaf.VerifyHostname(name) == nil
	}
	_, parent, _ := strings.Cut(name, ".")
	return slices.Contains(s.names, name) || (parent != "" && slices.Contains(s.names, "*."+parent))
}
