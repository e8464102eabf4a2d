package fanout

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// operator is the root of trust of a NATS server, with one account.
type operator struct {
	claims       *jwt.OperatorClaims
	account      nkeys.KeyPair
	accountToken string // of the account
	accountKey   string // key of the account
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	newKeys := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := make()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return pair, public
	}
	root, rootPublic := newKeys(nkeys.CreateOperator)
	created := &operator{claims: jwt.NewOperatorClaims(rootPublic)}
	created.account, created.accountKey = newKeys(nkeys.CreateAccount)
	var err error
	if created.accountToken, err = jwt.NewAccountClaims(created.accountKey).Encode(root); err != nil {
		t.Fatal(err)
	}
	return created
}

// writeCredentials writes a credentials file of a user with access to the subjects of one cluster.
func (o *operator) writeCredentials(t *testing.T, cluster string) string {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewUserClaims(public)
	claims.Pub.Allow.Add("binnacle." + cluster + ".>")
	claims.Sub.Allow.Add("binnacle."+cluster+".>", "_INBOX.>")
	token, err := claims.Encode(o.account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startNATS starts a NATS server.
func startNATS(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("timeout: got no NATS server, want one")
	}
	return srv
}

// TestServerAcceptsOnlySignedUsers checks that a server that requires signed user tokens accepts only replicas with
// one, and that a replaced file is used.
func TestServerAcceptsOnlySignedUsers(t *testing.T) {
	trusted := newOperator(t)
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(trusted.accountKey, trusted.accountToken); err != nil {
		t.Fatal(err)
	}
	srv := startNATS(t, &server.Options{
		Host:             "127.0.0.1",
		Port:             server.RANDOM_PORT,
		NoSigs:           true,
		NoLog:            true,
		TrustedOperators: []*jwt.OperatorClaims{trusted.claims},
		AccountResolver:  resolver,
	})
	defer stopNATS(srv)

	store := newFakeStore()
	elector := newFakeElector(store)
	startReplica := func(id, file string) *process {
		options := NewOptions()
		options.Servers = []string{srv.ClientURL()}
		options.CredentialsFile = file
		fanout, err := New(Config{
			Options:   options,
			Store:     store,
			Elector:   elector,
			Root:      testRoot,
			ID:        id,
			Logger:    quietLog(),
			Heartbeat: 250 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		started := &process{Fanout: fanout, from: store.newest(), nextBatch: make(chan struct{})}
		started.recorded.applied = started.from
		runProcess(t, started)
		return started
	}
	cluster := NewOptions().ClusterID
	first := startReplica("first", trusted.writeCredentials(t, cluster))
	first.awaitSource(t, sourceLocal)
	second := startReplica("second", trusted.writeCredentials(t, cluster))
	second.awaitSource(t, sourceNATS)

	file := newOperator(t).writeCredentials(t, cluster)
	third := startReplica("third", file)
	store.write(1, 10)
	third.awaitCurrent(t, store)
	if s := third.State(); s.Connected || s.Source != sourceStore {
		t.Errorf("replica with credentials of another operator: got %+v, want it to read the store", s)
	}
	fresh, err := os.ReadFile(trusted.writeCredentials(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, fresh, 0o600); err != nil {
		t.Fatal(err)
	}
	third.awaitSource(t, sourceNATS)
}
