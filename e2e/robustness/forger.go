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
	// recordedMessages is the number of newest messages that the forger keeps.
	recordedMessages = 4096
	publishInterval  = 2 * time.Millisecond
	// minMessages is the number of messages that a forger needs.
	minMessages = 20
)

// forger records the messages of publishers and publishes outdated or corrupt copies. It does not
// receive its own messages.
type forger struct {
	conn    *nats.Conn
	subject string

	mu       sync.Mutex // never held while another lock is acquired
	recorded [][]byte
}

// startForger connects to NATS and records the messages between replicas.
func (c *Cluster) startForger() *forger {
	c.t.Helper()
	var servers []string
	for _, n := range c.nats {
		servers = append(servers, "nats://"+n.Addr)
	}
	conn, err := nats.Connect(strings.Join(servers, ","), nats.NoEcho(), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	l := &forger{conn: conn, subject: "binnacle." + clusterID + ".changes"}
	if _, err := conn.Subscribe(l.subject, func(m *nats.Msg) { l.recordMessage(m.Data) }); err != nil {
		c.t.Fatal(err)
	}
	return l
}

// recordMessage stores a message and forgets the oldest beyond recordedMessages.
func (l *forger) recordMessage(message []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.recorded) == recordedMessages {
		l.recorded = l.recorded[1:]
	}
	l.recorded = append(l.recorded, message)
}

// copyRecorded returns a copy of the list of recorded messages.
func (l *forger) copyRecorded() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.recorded)
}

// publish publishes messages at intervals until stop is called. Each is the result of alter for a
// random one of known.
func (l *forger) publish(known [][]byte, random *rand.Rand, alter func(*rand.Rand, []byte) []byte) (stop func()) {
	done := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		tick := time.NewTicker(publishInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				// Messages to a stopped server are lost.
				_ = l.conn.Publish(l.subject, alter(random, known[random.IntN(len(known))]))
			}
		}
	})
	return func() {
		close(done)
		publishing.Wait()
	}
}

// replayOldPublisher simulates a publisher that does not know that another replaced it. It repeats
// and continues its old messages.
func replayOldPublisher(cluster *Cluster) func() {
	cluster.t.Helper()
	old, _ := cluster.publisherAndOther()
	known := cluster.awaitMessages()
	before := map[*replica]float64{}
	for _, r := range cluster.replicas {
		before[r], _ = r.countGaps()
	}
	start := killProcess(old)
	// A replica that knows no newer publisher accepts the old one's messages. A replica that had
	// received all of them switches without a gap.
	receivedBytes := map[*replica]float64{} // bytes when another publisher was first seen
	harness.Eventually(cluster.t, waitTimeout, "all follow another publisher", func() error {
		publisher, err := cluster.publisher()
		if err != nil {
			return err
		}
		for _, r := range cluster.replicas {
			if r == old || r == publisher {
				continue
			}
			n, fallback := r.countGaps()
			m, err := r.metrics()
			if err != nil {
				return err
			}
			bytes := m[`binnacle_fanout_bytes_total{direction="received"}`]
			if _, ok := receivedBytes[r]; !ok {
				receivedBytes[r] = bytes
			}
			if fallback || n == before[r] && bytes == receivedBytes[r] {
				return errors.New("a replica may still follow the old publisher")
			}
		}
		return nil
	})
	stop := cluster.forger.publish(known, rand.New(rand.NewPCG(cluster.rand.Uint64(), 0)), func(r *rand.Rand, message []byte) []byte {
		if r.IntN(2) == 0 {
			return message
		}
		return continueAfter(r, message)
	})
	return func() {
		stop()
		start()
	}
}

// publishInvalidMessages publishes corrupt messages and valid ones of other format versions.
func publishInvalidMessages(cluster *Cluster) func() {
	cluster.t.Helper()
	return cluster.forger.publish(cluster.awaitMessages(), rand.New(rand.NewPCG(cluster.rand.Uint64(), 0)),
		func(r *rand.Rand, message []byte) []byte {
			message = slices.Clone(message)
			switch r.IntN(4) {
			case 0:
				message[r.IntN(len(message))] ^= 1 << r.IntN(8)
			case 1:
				message = message[:r.IntN(len(message))]
			case 2:
				message = appendChecksum(append(message[:len(message)-checksumBytes], byte(r.Uint32())))
			default:
				message[versionOffset] += byte(1 + r.IntN(254))
				message = appendChecksum(message[:len(message)-checksumBytes])
			}
			return message
		})
}

// awaitMessages waits until the forger has recorded enough messages and returns them.
func (c *Cluster) awaitMessages() (known [][]byte) {
	c.t.Helper()
	harness.Eventually(c.t, waitTimeout, "messages between the replicas", func() error {
		known = c.forger.copyRecorded()
		if len(known) < minMessages {
			return errors.New("too few messages recorded")
		}
		return nil
	})
	return known
}

// Offsets and sizes in bytes of a message; see FORMAT in the API server's package fanout.
const (
	versionOffset   = 2
	flagsOffset     = 3
	clusterOffset   = 4
	checksumBytes   = 4
	sumBytes        = 4
	lastMessageFlag = 1 << 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendChecksum appends the checksum of a message, as publishers do.
func appendChecksum(message []byte) []byte {
	return binary.LittleEndian.AppendUint32(message, crc32.Checksum(message, castagnoli))
}

// continueAfter returns a message with which the same publisher continues at an arbitrary later
// revision, either without changes or as its last message.
func continueAfter(random *rand.Rand, message []byte) []byte {
	at := clusterOffset
	number := func() uint64 {
		n, size := binary.Uvarint(message[at:])
		at += size
		return n
	}
	at += int(number()) // cluster ID
	number()            // epoch
	number()            // chain
	head := slices.Clone(message[:at])
	head[flagsOffset] = byte(random.IntN(2)) * lastMessageFlag
	previous := number()
	last := number()
	sum := message[at : at+sumBytes]
	head = binary.AppendUvarint(head, previous)
	head = binary.AppendUvarint(head, last)
	head = append(head, sum...)
	head = binary.AppendUvarint(head, uint64(1+random.IntN(10_000))) // revisions advanced
	head = binary.AppendUvarint(head, 0)                             // number of changes
	return appendChecksum(head)
}
