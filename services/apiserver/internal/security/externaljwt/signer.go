package externaljwt

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	pb "k8s.io/externaljwt/apis/v1alpha1"

	"binnacle/libs/satoken"
)

const (
	// fetchTimeout bounds a fetch of the keys. The first fetch waits for the signer, so it also bounds
	// how long the signer may take to become available.
	fetchTimeout = 60 * time.Second
	// metadataTimeout bounds the call for the signer's properties.
	metadataTimeout = 10 * time.Second
	// fetchRetryDelay is the time between a failed fetch of the keys and the next one.
	fetchRetryDelay = 10 * time.Second
	// maxKeyID bounds key ids, in bytes.
	maxKeyID = 1024
	// maxMessage bounds responses of the signer, in bytes.
	maxMessage = 4 << 20
	// Delays between attempts to connect.
	minRedial, maxRedial = 100 * time.Millisecond, 2 * time.Second
)

// Config configures a Signer.
type Config struct {
	// Socket is the path of the socket. An abstract socket starts with @.
	Socket  string
	Logger  *slog.Logger
	Metrics *Metrics
}

// Signer signs and verifies tokens with an external signer.
type Signer struct {
	Config
	conn    *grpc.ClientConn
	client  pb.ExternalJWTSignerClient
	keys    atomic.Pointer[keySet]
	fetches singleflight.Group
	// onChange is called after the keys have changed. It is set before Run.
	onChange func()
}

// New connects to a signer and fetches its keys. It waits up to a minute for an unavailable signer.
func New(ctx context.Context, config Config) (*Signer, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", config.Socket)
	}
	conn, err := grpc.NewClient("passthrough:///external-jwt-signer",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a local socket
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRedial},
			MinConnectTimeout: maxRedial,
		}),
		grpc.WithUnaryInterceptor(config.Metrics.recordCall),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Socket, err)
	}
	s := &Signer{Config: config, conn: conn, client: pb.NewExternalJWTSignerClient(conn), onChange: func() {}}
	s.keys.Store(&keySet{})
	if err := s.fetchKeys(ctx); err != nil {
		s.Close()
		return nil, fmt.Errorf("while initially filling key cache: %w", err)
	}
	return s, nil
}

// Close closes the connection.
func (s *Signer) Close() { _ = s.conn.Close() } // closing loses nothing

// OnChange sets the function that is called after the keys have changed. It must be called before
// Run.
func (s *Signer) OnChange(changed func()) { s.onChange = changed }

// MaxLifetime reads the maximum lifetime of a token from the signer.
func (s *Signer) MaxLifetime(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	m, err := s.client.Metadata(ctx, &pb.MetadataRequest{})
	if err != nil {
		return 0, err
	}
	seconds := m.GetMaxTokenExpirationSeconds()
	if seconds < satoken.MinLifetimeSeconds {
		return 0, fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)",
			seconds, satoken.MinLifetimeSeconds)
	}
	return time.Duration(min(seconds, satoken.MaxLifetimeSeconds)) * time.Second, nil
}

// SignClaims returns a signed token with the claims.
func (s *Signer) SignClaims(ctx context.Context, claims satoken.Claims) (token string, err error) {
	defer func() { s.Metrics.recordSign(err) }()
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("while merging claims: %w", err)
	}
	encoded := base64.RawURLEncoding.EncodeToString(payload)
	response, err := s.client.Sign(ctx, &pb.SignJWTRequest{Claims: encoded})
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	if err := s.checkHeader(ctx, response.GetHeader()); err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	if response.GetSignature() == "" {
		return "", errors.New("empty signature returned")
	}
	return response.GetHeader() + "." + encoded + "." + response.GetSignature(), nil
}

// checkHeader rejects token headers that Kubernetes does not issue.
func (s *Signer) checkHeader(ctx context.Context, encoded string) error {
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("while unwrapping header: %w", err)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	var header struct {
		Algorithm string `json:"alg,omitempty"`
		KeyID     string `json:"kid,omitempty"`
		Type      string `json:"typ,omitempty"`
	}
	if err := d.Decode(&header); err != nil {
		return fmt.Errorf("while parsing header JSON: %w", err)
	}
	switch {
	case header.Type != "JWT":
		return errors.New("bad type")
	case header.KeyID == "":
		return errors.New("key id missing")
	case len(header.KeyID) > maxKeyID:
		return errors.New("key id longer than 1 kb")
	}
	switch header.Algorithm {
	case "RS256", "ES256", "ES384", "ES512":
	default:
		return fmt.Errorf("bad signing algorithm %q", header.Algorithm)
	}
	for _, k := range s.Candidates(ctx, header.KeyID) {
		if k.Undiscoverable {
			return fmt.Errorf("key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", header.KeyID)
		}
	}
	return nil
}
