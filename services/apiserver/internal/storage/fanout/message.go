package fanout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"binnacle/services/apiserver/internal/storage"
)

// # FORMAT
//
// Subjects are binnacle.CLUSTER.changes (messages below) and binnacle.CLUSTER.ask (requests:
// without content for a heartbeat, with an identifier of 8 bytes for a check of the store), where
// CLUSTER is the cluster ID. Publishers on these subjects are trusted with the content of the
// caches, so grant them to the credentials of the replicas only.
//
// All numbers are unsigned LEB128 (uvarint) of at most 63 bits unless a width is given. Strings and
// values are a length and that many bytes.
//
//	magic       2 bytes   0xB1 0x6E
//	version     1 byte    3
//	flags       1 byte    bit 0: withheld, bit 1: end, bit 2: part, bit 3: answer,
//	                      bit 4: loaded; others are 0
//	cluster     string    1..63 bytes
//	epoch       number    the store's revision after the publisher's election
//	chain       number    random name of the chain
//	previous    number    revision that the chain had reached before
//	last        number    revision of the newest change up to previous; if loaded,
//	                      deletions after it are possible; 0 when unknown
//	sum         4 bytes   of that change, little endian: CRC-32C of its type (1 byte),
//	                      creation revision (zigzag varint), key and value
//	advance     number    revision - previous
//	count       number    changes, at most 65,536, or requests, 1..32; 0 if withheld,
//	                      end or part
//	changes:
//	  type      1 byte    1 created, 2 updated, 3 deleted
//	  step      number    revision - that of the change before (first: previous)
//	  age       number    1 + revision - creation revision; 0 when unknown
//	  key       string    1..65,535 bytes
//	  value     string    absent for deleted
//	answer, instead of changes:
//	  request   8 bytes   for each answered request
//	part, instead of changes:
//	  index     number    of this part, from 0
//	  total     number    parts of the message, 2..16,384
//	  data      string    piece of a whole message in this format, not empty
//	checksum    4 bytes   CRC-32C of all before, little endian
//
// The first change has a step of at least 1, and no revision exceeds that of the message. A
// message, also the whole of one in parts, is at most 16 MiB. The heads of its parts equal that
// of the message. A part and an answer may also be loaded. The value before a change is not sent:
// the receiver has it. A receiver rejects another version, unknown flags and trailing bytes.
//
// # Large messages
//
// A message holds whole revisions. A message that exceeds the server's payload limit (1 MiB by
// default) is published in ordered parts, which a replica joins: one message at a time, of at
// most 16 MiB. A lost or misordered part discards the message, which the next one shows as a gap.
// Some revisions are published as a withheld message without their changes: a revision that is
// larger still, one that has more changes than a message may have, and, where the limit is below
// 1 KiB, any that does not fit. Replicas read that range from the store.

// Bounds of the format; see FORMAT above.
const (
	maxMessageBytes = 16 << 20
	maxEvents       = 1 << 16
	maxKeyBytes     = 1<<16 - 1
	maxClusterBytes = 63

	formatVersion  = 3
	checksumBytes  = 4
	changeSumBytes = 4
	// maxAnswers is how many requests one message answers.
	maxAnswers  = 32
	answerBytes = 8
	// minEventBytes is the size of the smallest change on the wire.
	minEventBytes = 5
)

const (
	flagWithheld = 1 << iota
	flagEnd
	flagPart
	flagAnswer
	flagLoaded
	knownFlags = flagWithheld | flagEnd | flagPart | flagAnswer | flagLoaded
)

var (
	magic      = [2]byte{0xB1, 0x6E}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errDamaged wraps every reason to reject received bytes.
var errDamaged = errors.New("message is damaged")

// message states all changes after previous, up to and including revision.
type message struct {
	cluster  string
	epoch    int64
	chain    int64
	previous int64
	// last is the newest change up to previous. A message carries its revision and sum. It is the
	// zero ChangeID if it is not known.
	last storage.ChangeID
	// loaded means that there may have been deletions between last and previous.
	loaded   bool
	revision int64
	// withheld means that the changes did not fit into messages. Receivers read them from the store.
	withheld bool
	// end means that the publisher stops.
	end    bool
	events []storage.Event
	// answers holds the requests that the latest check of the store answers.
	answers []uint64
	// part is set in a piece of a message that is sent in parts.
	part *part

	// local means that this replica's own publisher passed the message directly.
	local bool
	bytes int // estimated size in memory, while the message waits
}

// messageSize returns an upper bound of the encoded size of a message without changes, in bytes.
func messageSize(cluster string) int {
	return len(magic) + 2 + 7*binary.MaxVarintLen64 + len(cluster) + changeSumBytes + checksumBytes
}

// eventSize returns an upper bound of the encoded size of a change, in bytes.
func eventSize(e *storage.Event) int {
	return 1 + 4*binary.MaxVarintLen64 + len(e.Key) + len(e.Value)
}

// appendMessage appends the encoding of m to data. m must respect the bounds of the format.
func appendMessage(data []byte, m *message) []byte {
	start := len(data)
	var flags byte
	if m.withheld {
		flags |= flagWithheld
	}
	if m.end {
		flags |= flagEnd
	}
	if m.loaded {
		flags |= flagLoaded
	}
	if len(m.answers) > 0 {
		data = appendHead(data, m, flags|flagAnswer, len(m.answers))
		for _, a := range m.answers {
			data = binary.LittleEndian.AppendUint64(data, a)
		}
		return appendChecksum(data, start)
	}
	data = appendHead(data, m, flags, len(m.events))
	last := m.previous
	for i := range m.events {
		event := &m.events[i]
		data = append(data, byte(event.Type))
		data = binary.AppendUvarint(data, uint64(event.Revision-last))
		last = event.Revision
		var age uint64
		if event.CreateRevision > 0 {
			age = 1 + uint64(event.Revision-event.CreateRevision)
		}
		data = binary.AppendUvarint(data, age)
		data = appendString(data, event.Key)
		if event.Type != storage.Deleted {
			data = binary.AppendUvarint(data, uint64(len(event.Value)))
			data = append(data, event.Value...)
		}
	}
	return appendChecksum(data, start)
}

// appendHead encodes the common head of all messages.
func appendHead(b []byte, m *message, flags byte, count int) []byte {
	b = append(b, magic[0], magic[1], formatVersion, flags)
	b = appendString(b, m.cluster)
	b = binary.AppendUvarint(b, uint64(m.epoch))
	b = binary.AppendUvarint(b, uint64(m.chain))
	b = binary.AppendUvarint(b, uint64(m.previous))
	b = binary.AppendUvarint(b, uint64(m.last.Revision))
	b = binary.LittleEndian.AppendUint32(b, m.last.Sum)
	b = binary.AppendUvarint(b, uint64(m.revision-m.previous))
	return binary.AppendUvarint(b, uint64(count))
}

// appendChecksum completes the message that starts at start.
func appendChecksum(b []byte, start int) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decodeMessage parses one whole message, or a part of one. Only the data of a part shares memory
// with data. Errors wrap errDamaged.
func decodeMessage(data []byte) (*message, error) {
	m, err := parseMessage(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return m, nil
}

// parseMessage decodes and verifies a message.
func parseMessage(data []byte) (*message, error) {
	flags, rest, err := openMessage(data)
	if err != nil {
		return nil, err
	}
	r := messageReader{rest: rest}
	m := &message{
		withheld: flags&flagWithheld != 0,
		end:      flags&flagEnd != 0,
		loaded:   flags&flagLoaded != 0,
		cluster:  r.readString(maxClusterBytes),
		epoch:    r.readNumber(),
		chain:    r.readNumber(),
		previous: r.readNumber(),
		last:     storage.ChangeID{Revision: r.readNumber(), Sum: r.readSum()},
	}
	m.revision = r.readAdvance(m.previous)
	count := r.readNumber()
	flags &^= flagLoaded
	if err := r.checkHead(m, flags, count); err != nil {
		return nil, err
	}
	switch flags {
	case flagPart:
		m.part, err = r.readPart()
	case flagAnswer:
		err = r.readAnswers(m, int(count))
	default:
		err = r.readEvents(m, int(count))
	}
	if err != nil {
		return nil, err
	}
	if len(r.rest) != 0 {
		return nil, fmt.Errorf("%d bytes are left over", len(r.rest))
	}
	return m, nil
}

// openMessage verifies the magic, the version and the checksum. It returns the flags and the bytes
// between them and the checksum.
func openMessage(data []byte) (flags byte, rest []byte, err error) {
	if len(data) > maxMessageBytes {
		return 0, nil, fmt.Errorf("%d bytes are more than %d", len(data), maxMessageBytes)
	}
	if len(data) < len(magic)+2+checksumBytes {
		return 0, nil, errors.New("too short")
	}
	body, sum := data[:len(data)-checksumBytes], data[len(data)-checksumBytes:]
	if body[0] != magic[0] || body[1] != magic[1] {
		return 0, nil, errors.New("not a message of this format")
	}
	if body[2] != formatVersion {
		return 0, nil, fmt.Errorf("format version %d is not known", body[2])
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(sum) {
		return 0, nil, errors.New("checksum differs")
	}
	flags = body[3]
	if flags&^knownFlags != 0 {
		return 0, nil, fmt.Errorf("flags %#x are not known", flags)
	}
	return flags, body[4:], nil
}

// checkHead returns an error if the fields before the content contradict each other. flags excludes
// flagLoaded.
func (r *messageReader) checkHead(m *message, flags byte, count int64) error {
	switch {
	case r.err != nil:
		return r.err
	case m.last.Revision > m.previous:
		return fmt.Errorf("the last change up to %d is at %d", m.previous, m.last.Revision)
	case flags&flagAnswer == 0 && flags != 0 && count != 0:
		return errors.New("a flagged message has changes")
	case flags&(flagPart|flagAnswer) != 0 && flags&(flags-1) != 0:
		return errors.New("a part, or an answer, has another flag")
	case flags == flagAnswer && (count == 0 || count > maxAnswers):
		return fmt.Errorf("%d requests are answered", count)
	case count > maxEvents || count > int64(len(r.rest)/minEventBytes):
		return fmt.Errorf("count of changes %d is too large", count)
	}
	return nil
}

// messageReader reads fields from the front of a message. It keeps the first error; later reads
// return zero values.
type messageReader struct {
	rest []byte
	err  error
}

// readAnswers reads the requests that a message answers.
func (r *messageReader) readAnswers(m *message, count int) error {
	if len(r.rest) < count*answerBytes {
		return errors.New("an answer is cut off")
	}
	m.answers = make([]uint64, count)
	for i := range m.answers {
		m.answers[i] = binary.LittleEndian.Uint64(r.rest)
		r.rest = r.rest[answerBytes:]
	}
	return nil
}

// readEvents reads the changes of a message.
func (r *messageReader) readEvents(m *message, count int) error {
	if count == 0 {
		return nil
	}
	m.events = make([]storage.Event, count)
	last := m.previous
	for i := range m.events {
		event := &m.events[i]
		event.Type = storage.EventType(r.readByte())
		event.Revision = r.readAdvance(last)
		age := r.readNumber()
		event.Key = r.readString(maxKeyBytes)
		if r.err == nil && event.Type != storage.Deleted {
			event.Value = r.readValue()
		}
		switch {
		case r.err != nil:
			return r.err
		case event.Type < storage.Created || event.Type > storage.Deleted:
			return fmt.Errorf("change type %d is not known", event.Type)
		case event.Revision > m.revision || event.Revision == m.previous:
			return fmt.Errorf("change at %d is outside (%d, %d]", event.Revision, m.previous, m.revision)
		case age > event.Revision:
			return fmt.Errorf("change at %d has an age of %d", event.Revision, age)
		}
		if age > 0 {
			event.CreateRevision = event.Revision - (age - 1)
		}
		last = event.Revision
	}
	return nil
}

// recordError records the first error.
func (r *messageReader) recordError(subject string) {
	if r.err == nil {
		r.err = errors.New(subject)
	}
	r.rest = nil
}

// readByte reads one byte.
func (r *messageReader) readByte() byte {
	if len(r.rest) == 0 {
		r.recordError("ends within a change")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// readNumber reads a number in LEB128.
func (r *messageReader) readNumber() int64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > math.MaxInt64 {
		r.recordError("a number is cut off or too large")
		return 0
	}
	r.rest = r.rest[n:]
	return int64(v)
}

// readSum reads four bytes.
func (r *messageReader) readSum() uint32 {
	if len(r.rest) < changeSumBytes {
		r.recordError("a sum is cut off")
		return 0
	}
	v := binary.LittleEndian.Uint32(r.rest)
	r.rest = r.rest[changeSumBytes:]
	return v
}

// readAdvance reads a distance from base and returns the sum of both.
func (r *messageReader) readAdvance(base int64) int64 {
	d := r.readNumber()
	if d > math.MaxInt64-base {
		r.recordError("a revision is too large")
		return 0
	}
	return base + d
}

// readBytes reads a length and that many bytes. The result shares memory with the message.
func (r *messageReader) readBytes() []byte {
	n := r.readNumber()
	if n > int64(len(r.rest)) {
		r.recordError("a length is beyond the end")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// readString reads 1 to limit bytes.
func (r *messageReader) readString(limit int) string {
	b := r.readBytes()
	if r.err == nil && (len(b) == 0 || len(b) > limit) {
		r.recordError(fmt.Sprintf("a string of %d bytes is empty or too long", len(b)))
	}
	return string(b)
}

// readValue reads a value. The result shares no memory with the message.
func (r *messageReader) readValue() []byte {
	b := r.readBytes()
	v := make([]byte, len(b))
	copy(v, b)
	return v
}
