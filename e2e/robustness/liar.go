package robustness

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"binnacle/e2e/harness"
)

const (
	// heardMessages is how many of the newest messages a liar knows.
	heardMessages = 4096
	lieInterval   = 2 * time.Millisecond
	// fewMessages are enough to tell lies of.
	fewMessages = 20
)

// liar hears what publishers tell, as whoever may, and tells it again when it is not
// true any more. Its own lies it does not hear.
type liar struct {
	conn    *nats.Conn
	subject string

	mu    sync.Mutex // a leaf
	heard [][]byte
}

func (c *Cluster) startLiar() *liar {
	c.t.Helper()
	var servers []string
	for _, n := range c.nats {
		servers = append(servers, "nats://"+n.Addr)
	}
	conn, err := nats.Connect(strings.Join(servers, ","), nats.NoEcho(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	l := &liar{conn: conn, subject: "binnacle." + clusterID + ".changes"}
	if _, err := conn.Subscribe(l.subject, func(m *nats.Msg) { l.hear(m.Data) }); err != nil {
		c.t.Fatal(err)
	}
	return l
}

func (l *liar) hear(message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.heard) == heardMessages {
		l.heard = l.heard[1:]
	}
	l.heard = append(l.heard, message)
}

// known is what was heard so far.
func (l *liar) known() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard)
}

// tell tells lies that are made of what was heard, until the result is called.
func (l *liar) tell(known [][]byte, r *rand.Rand, lie func(*rand.Rand, []byte) []byte) (stop func()) {
	done := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(lieInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				// A server that is gone hears no lies.
				_ = l.conn.Publish(l.subject, lie(r, known[r.IntN(len(known))]))
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}

// oldPublisher is one whose office another has, and who does not know: it says again
// what it said, and how it would go on.
func oldPublisher(c *Cluster) func() {
	c.t.Helper()
	old, _ := c.roles()
	known := c.hearSome()
	before := map[*replica]float64{}
	for _, r := range c.replicas {
		before[r], _ = r.gaps()
	}
	start := kill(old)
	// What a publisher says is believed by those who have heard of no other. Who had all that
	// the old one said, as the other had, goes on without a gap.
	heard := map[*replica]float64{} // when there was another
	harness.Eventually(c.t, patience, "all follow another publisher", func() error {
		publisher, err := c.publisher()
		if err != nil {
			return err
		}
		for _, r := range c.replicas {
			if r == old || r == publisher {
				continue
			}
			n, away := r.gaps()
			m, err := r.metrics()
			if err != nil {
				return err
			}
			bytes := m[`binnacle_fanout_bytes_total{direction="received"}`]
			if _, ok := heard[r]; !ok {
				heard[r] = bytes
			}
			if away || n == before[r] && bytes == heard[r] {
				return errors.New("one may follow the old one")
			}
		}
		return nil
	})
	stop := c.liar.tell(known, rand.New(rand.NewPCG(c.rand.Uint64(), 0)), func(r *rand.Rand, message []byte) []byte {
		if r.IntN(2) == 0 {
			return message
		}
		return goneOn(r, message)
	})
	return func() {
		stop()
		start()
	}
}

// strangeMessages are messages that were damaged, and whole ones of other versions of
// the format.
func strangeMessages(c *Cluster) func() {
	c.t.Helper()
	return c.liar.tell(c.hearSome(), rand.New(rand.NewPCG(c.rand.Uint64(), 0)), func(r *rand.Rand, message []byte) []byte {
		message = slices.Clone(message)
		switch r.IntN(4) {
		case 0:
			message[r.IntN(len(message))] ^= 1 << r.IntN(8)
		case 1:
			message = message[:r.IntN(len(message))]
		case 2:
			message = signed(append(message[:len(message)-checksumBytes], byte(r.Uint32())))
		default:
			message[versionAt] += byte(1 + r.IntN(254))
			message = signed(message[:len(message)-checksumBytes])
		}
		return message
	})
}

// hearSome waits until there is something to tell lies of, after what only others know.
func (c *Cluster) hearSome() (known [][]byte) {
	c.t.Helper()
	harness.Eventually(c.t, patience, "messages between the replicas", func() error {
		if known = c.liar.known(); len(known) < fewMessages {
			return errors.New("few were heard")
		}
		return nil
	})
	return known
}

// What is known of the format here; see FORMAT in the API server's package fanout.
const (
	versionAt     = 2
	flagsAt       = 3
	clusterAt     = 4
	checksumBytes = 4
	sumBytes      = 4
	flagEnd       = 1 << 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func signed(message []byte) []byte {
	return binary.LittleEndian.AppendUint32(message, crc32.Checksum(message, castagnoli))
}

// goneOn is a message of the same publisher about what comes next, at whatever time:
// nothing has changed since, or it says goodbye.
func goneOn(r *rand.Rand, message []byte) []byte {
	at := clusterAt
	number := func() uint64 {
		n, size := binary.Uvarint(message[at:])
		at += size
		return n
	}
	at += int(number()) // the cluster's name
	number()            // its epoch
	number()            // its chain
	head := slices.Clone(message[:at])
	head[flagsAt] = byte(r.IntN(2)) * flagEnd
	previous := number()
	last := number()
	sum := message[at : at+sumBytes]
	head = binary.AppendUvarint(head, previous)
	head = binary.AppendUvarint(head, last)
	head = append(head, sum...)
	head = binary.AppendUvarint(head, uint64(1+r.IntN(10_000))) // so far it has advanced
	head = binary.AppendUvarint(head, 0)                        // without a change
	return signed(head)
}
