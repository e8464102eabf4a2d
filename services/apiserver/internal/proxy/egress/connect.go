package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// maxResponse is the maximum size in bytes of the proxy's response.
const maxResponse = 64 << 10

// connectProxy is a proxy that speaks HTTP CONNECT.
type connectProxy struct {
	network, address string
	tlsConfig        *tls.Config // nil without TLS
}

// newConnectProxy returns the proxy at a URL. It reads the client certificate for each
// connection, because it may be renewed.
func newConnectProxy(t *TCPTransport) (*connectProxy, error) {
	proxyURL, err := url.Parse(t.URL)
	if err != nil {
		return nil, fmt.Errorf("invalid proxy server url %q: %w", t.URL, err)
	}
	created := &connectProxy{network: "tcp", address: proxyURL.Host}
	if proxyURL.Port() == "" {
		created.address = net.JoinHostPort(proxyURL.Hostname(), proxyURL.Scheme) // by the service name of the port
	}
	if tlsConfig := t.TLSConfig; tlsConfig != nil {
		if _, err := tls.LoadX509KeyPair(tlsConfig.ClientCert, tlsConfig.ClientKey); err != nil {
			return nil, fmt.Errorf("failed to read key pair %s & %s, got %w", tlsConfig.ClientCert, tlsConfig.ClientKey, err)
		}
		created.tlsConfig = &tls.Config{
			MinVersion: tls.VersionTLS12,
			ServerName: proxyURL.Hostname(),
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(tlsConfig.ClientCert, tlsConfig.ClientKey)
				return &pair, err
			},
		}
		if tlsConfig.CABundle != "" {
			pem, err := os.ReadFile(tlsConfig.CABundle)
			if err != nil {
				return nil, fmt.Errorf("failed to read cert file %s, got %w", tlsConfig.CABundle, err)
			}
			created.tlsConfig.RootCAs = x509.NewCertPool()
			if !created.tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("failed to append CA cert %s to the cert pool", tlsConfig.CABundle)
			}
		}
	}
	return created, nil
}

func (c *connectProxy) connect(ctx context.Context) (proxyConn, error) {
	dial := (&net.Dialer{}).DialContext
	if c.tlsConfig != nil {
		dial = (&tls.Dialer{Config: c.tlsConfig}).DialContext
	}
	conn, err := dial(ctx, c.network, c.address)
	if err != nil {
		return nil, fmt.Errorf("dialing proxy %q failed: %w", c.address, err)
	}
	return &connectConn{conn, c.address}, nil
}

// connectConn is a connection to the proxy.
type connectConn struct {
	net.Conn
	proxy string
}

// dial opens a connection to addr through the proxy.
func (c *connectConn) dial(ctx context.Context, addr string) (net.Conn, error) {
	// Interrupts reads and writes when the context ends.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	conn, err := c.sendConnect(addr)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(err, cause)
		}
		return nil, err
	}
	return conn, nil
}

// sendConnect sends the CONNECT request and reads the response.
func (c *connectConn) sendConnect(addr string) (net.Conn, error) {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, "127.0.0.1"); err != nil {
		return nil, fmt.Errorf("writing CONNECT to %s via proxy %s failed: %w", addr, c.proxy, err)
	}
	limit := &io.LimitedReader{R: c.Conn, N: maxResponse}
	read := bufio.NewReader(limit)
	resp, err := http.ReadResponse(read, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("reading HTTP response from CONNECT to %s via proxy %s failed: %w", addr, c.proxy, err)
	}
	// The body is not closed: a response to CONNECT has none, whatever its headers say (RFC 9110,
	// 9.3.6). Closing it would read the first data of the server.
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("proxy error from %s while dialing %s, code %d: %s", c.proxy, addr, resp.StatusCode, resp.Status)
	}
	if read.Buffered() == 0 {
		return c.Conn, nil
	}
	// The server spoke first, and its data arrived with the proxy's response.
	buffered, err := read.Peek(read.Buffered())
	return &bufferedConn{c.Conn, buffered}, err
}

// bufferedConn is a connection with data that arrived early.
type bufferedConn struct {
	net.Conn
	buffered []byte
}

// Read implements net.Conn.
func (c *bufferedConn) Read(b []byte) (int, error) {
	if len(c.buffered) > 0 {
		n := copy(b, c.buffered)
		c.buffered = c.buffered[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
