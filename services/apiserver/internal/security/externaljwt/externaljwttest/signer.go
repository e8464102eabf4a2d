// Package externaljwttest provides an external token signer for tests: a gRPC server on a Unix
// socket.
package externaljwttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	pb "k8s.io/externaljwt/apis/v1alpha1"
)

// State is what a signer responds with. Header contains the header fields of tokens.
type State struct {
	Header      map[string]any
	Key         *ecdsa.PrivateKey
	Keys        []*pb.Key
	DataTime    time.Time
	Refresh     int64
	MaxLifetime int64
	NoSignature bool
}

// Signer is an external signer.
type Signer struct {
	pb.UnimplementedExternalJWTSignerServer
	// Socket is the path of its socket.
	Socket string

	t       testing.TB
	mu      sync.Mutex // leaf lock
	state   State
	fetches int
	server  *grpc.Server
	served  chan struct{}
}

// New returns a signer with a key with the id "kid-1". Start must be called.
func New(t testing.TB) *Signer {
	t.Helper()
	dir, err := os.MkdirTemp("", "signer") // socket paths must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	key := NewKey(t)
	return &Signer{
		Socket: filepath.Join(dir, "s"),
		t:      t,
		state: State{
			Header:      map[string]any{"alg": "ES256", "kid": "kid-1", "typ": "JWT"},
			Key:         key,
			Keys:        []*pb.Key{Public(t, "kid-1", key, false)},
			DataTime:    time.Now(),
			Refresh:     3600,
			MaxLifetime: 24 * 3600,
		},
	}
}

// Start serves until Stop or the end of the test.
func (s *Signer) Start() {
	s.t.Helper()
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan struct{})
	pb.RegisterExternalJWTSignerServer(server, s)
	s.server = server
	s.served = served
	go func() { defer close(served); _ = server.Serve(l) }()
	s.t.Cleanup(s.Stop)
}

// Stop ends serving.
func (s *Signer) Stop() {
	s.server.Stop()
	<-s.served
}

// Change changes the state.
func (s *Signer) Change(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Header, s.state.Keys = maps.Clone(s.state.Header), append([]*pb.Key(nil), s.state.Keys...)
	change(&s.state)
}

// Fetches returns the number of key fetches.
func (s *Signer) Fetches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

func (s *Signer) currentState() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Sign implements the service.
func (s *Signer) Sign(_ context.Context, r *pb.SignJWTRequest) (*pb.SignJWTResponse, error) {
	state := s.currentState()
	text, err := json.Marshal(state.Header)
	if err != nil {
		return nil, err
	}
	header := base64.RawURLEncoding.EncodeToString(text)
	if state.NoSignature {
		return &pb.SignJWTResponse{Header: header}, nil
	}
	signature, err := jwt.SigningMethodES256.Sign(header+"."+r.GetClaims(), state.Key)
	if err != nil {
		return nil, err
	}
	return &pb.SignJWTResponse{Header: header, Signature: base64.RawURLEncoding.EncodeToString(signature)}, nil
}

// FetchKeys implements the service.
func (s *Signer) FetchKeys(context.Context, *pb.FetchKeysRequest) (*pb.FetchKeysResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches++
	return &pb.FetchKeysResponse{
		Keys:               s.state.Keys,
		DataTimestamp:      timestamppb.New(s.state.DataTime),
		RefreshHintSeconds: s.state.Refresh,
	}, nil
}

// Metadata implements the service.
func (s *Signer) Metadata(context.Context, *pb.MetadataRequest) (*pb.MetadataResponse, error) {
	return &pb.MetadataResponse{MaxTokenExpirationSeconds: s.currentState().MaxLifetime}, nil
}

// NewKey returns a key that signs tokens.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Public returns the public part of a key.
func Public(t testing.TB, id string, key *ecdsa.PrivateKey, excluded bool) *pb.Key {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return &pb.Key{KeyId: id, Key: der, ExcludeFromOidcDiscovery: excluded}
}
