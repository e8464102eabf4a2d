package suite

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 5 * time.Second
	maxResponse   = 64 << 10
)

// identity selects the credentials of a readiness check.
type identity int

const (
	identityAdmin identity = iota
	identityEtcdClient
	identityNATS // which sends its greeting to every client
)

// prober checks the readiness of instances.
type prober struct {
	admin, etcd *http.Client
	nats        *tls.Config
	// pairs are the client certificates of the above.
	pairs []*tlsfiles.Pair
}

// newProber returns a prober with the certificates of the administrator and, for a replicated
// suite, of an API server.
func newProber(layout certs.Layout, replicated bool) (*prober, error) {
	created := &prober{}
	admin, err := created.tlsConfig(layout.AdminTrust(), layout.Admin())
	if err != nil {
		return nil, err
	}
	created.admin = newClient(admin)
	if !replicated {
		return created, nil
	}
	etcdClient, err := created.tlsConfig(layout.TrustBundle(apiserver, certs.EtcdCA), layout.EtcdClient())
	if err != nil {
		return nil, err
	}
	created.etcd = newClient(etcdClient)
	if created.nats, err = created.tlsConfig(layout.TrustBundle(apiserver, certs.NATSCA), layout.NATSClient()); err != nil {
		return nil, err
	}
	created.nats.ServerName = "localhost"
	return created, nil
}

// reload reads the client certificates again.
func (pr *prober) reload() error {
	var errs []error
	for _, p := range pr.pairs {
		_, err := p.Reload()
		errs = append(errs, err)
	}
	pr.close() // new connections present the new certificates
	return errors.Join(errs...)
}

func (pr *prober) close() {
	for _, c := range []*http.Client{pr.admin, pr.etcd} {
		if c != nil {
			c.CloseIdleConnections()
		}
	}
}

// tlsConfig returns the TLS configuration of a client with a certificate.
func (pr *prober) tlsConfig(ca string, files certs.Pair) (*tls.Config, error) {
	bundle, err := tlsfiles.LoadBundle(ca)
	if err != nil {
		return nil, err
	}
	pair, err := tlsfiles.LoadPair(files.Cert, files.Key)
	if err != nil {
		return nil, err
	}
	pr.pairs = append(pr.pairs, pair)
	return &tls.Config{RootCAs: bundle.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return pair.Certificate(), nil
	}}, nil
}

func newClient(c *tls.Config) *http.Client {
	return &http.Client{Timeout: probeTimeout, Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}}
}

// giveTimeToStart gives processes time to become ready, so that those started next find them. Later
// processes wait for slower ones themselves.
func (pr *prober) giveTimeToStart(ctx context.Context, group []*process, settleTimeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for _, p := range group {
		for ready := false; !ready; ready, _ = pr.checkReady(ctx, p.instance) {
			select {
			case <-ctx.Done():
				return
			case <-p.done:
				return
			case <-tick.C:
			}
		}
	}
}

// waitUntilReady polls a service until it is ready, and periodically logs the state.
func (pr *prober) waitUntilReady(ctx context.Context, out *console, proc *process, reportInterval time.Duration) error {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	report := time.NewTicker(reportInterval)
	defer report.Stop()
	state := "not checked yet"
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s", proc.name, state)
		case <-report.C:
			out.printf("waiting for %s: %s", proc.name, state)
			continue
		case <-tick.C:
		}
		ready, reason := pr.checkReady(ctx, proc.instance)
		if ready {
			return nil
		}
		if ctx.Err() == nil {
			state = reason
		}
	}
}

// checkReady checks once. If the instance is not ready, it returns the reason.
func (pr *prober) checkReady(ctx context.Context, i instance) (ready bool, reason string) {
	switch i.identity {
	case identityNATS:
		return pr.isNATS(ctx, i.health)
	case identityEtcdClient:
		return isOK(ctx, pr.etcd, i.health)
	}
	return isOK(ctx, pr.admin, i.health)
}

// isNATS reports whether NATS accepts clients: it sends a greeting, then both change to TLS. A
// client that ends the connection before would leave an error in NATS' log.
func (pr *prober) isNATS(ctx context.Context, address string) (ready bool, reason string) {
	const greeting = "INFO "
	dialer := net.Dialer{Timeout: probeTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false, err.Error()
	}
	defer conn.Close()
	got := make([]byte, len(greeting))
	if err := conn.SetReadDeadline(time.Now().Add(probeTimeout)); err != nil {
		return false, err.Error()
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return false, err.Error()
	}
	if string(got) != greeting {
		return false, fmt.Sprintf("got %q, want %q", got, greeting)
	}
	if err := skipLine(conn); err != nil {
		return false, err.Error()
	}
	if err := tls.Client(conn, pr.nats).HandshakeContext(ctx); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// skipLine reads up to the end of a line, and no byte after it.
func skipLine(r io.Reader) error {
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
	}
	return nil
}

// isOK reports whether a URL returns 200.
func isOK(ctx context.Context, client *http.Client, url string) (ready bool, reason string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return false, err.Error()
	}
	if resp.StatusCode == http.StatusOK {
		return true, ""
	}
	var failing []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			failing = append(failing, name)
		}
	}
	if len(failing) == 0 {
		return false, resp.Status
	}
	return false, "failing checks: " + strings.Join(failing, ", ")
}

// usedPorts returns the ports of a plan, in ascending order.
func usedPorts(config Config, planned plan) (out []int) {
	n := Ports
	if !config.HA {
		n = len(planned.groups)
	}
	for i := range n {
		out = append(out, config.Port+i)
	}
	return out
}

// checkPorts returns an error that names the ports of a plan on which other processes listen.
func checkPorts(config Config, planned plan) error {
	var busy []string
	ports := usedPorts(config, planned)
	for _, port := range ports {
		listener, err := net.Listen("tcp", loopbackAddr(port))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			busy = append(busy, fmt.Sprint(port))
		case err != nil:
			return fmt.Errorf("--port: %w", err)
		default:
			listener.Close()
		}
	}
	if len(busy) == 0 {
		return nil
	}
	return fmt.Errorf("ports in use by other processes: %s; choose others with --port: the suite needs %d consecutive ports, now %d to %d",
		strings.Join(busy, ", "), len(ports), ports[0], ports[len(ports)-1])
}
