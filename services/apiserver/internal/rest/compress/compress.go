package compress

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/klauspost/compress/flate"
	"github.com/prometheus/client_golang/prometheus"

	"binnacle/services/apiserver/internal/cache/memory"
)

// Key identifies a segment by its content.
type Key [16]byte

// KeyOf returns the key for a description of a segment's content. The hash includes a secret of the
// cache, so clients cannot choose names that give two descriptions the same key.
func (c *Cache) KeyOf(description []byte) (k Key) {
	h := sha256.New()
	_, _ = h.Write(c.secret[:]) // a hash does not fail
	_, _ = h.Write(description)
	var sum [sha256.Size]byte
	copy(k[:], h.Sum(sum[:0]))
	return k
}

// EndsSegment reports whether a segment ends after an item with this name. It is true for about one
// of n names, where n is a power of two. The choice is unpredictable.
func (c *Cache) EndsSegment(name string, n uint64) bool {
	return maphash.String(c.seed, name)&(n-1) == 0
}

// Cache holds compressed segments within the server's memory budget.
type Cache struct {
	budget *memory.Budget
	quota  *memory.Quota // counts the bytes of segments
	secret [sha256.Size]byte
	seed   maphash.Seed
	hits   prometheus.Counter
	misses prometheus.Counter

	mu           sync.Mutex // leaf lock
	size         int64      // bytes of all segments
	segments     *lru.LRU[Key, *segment]
	compressions map[Key]*compression // in progress

	writers sync.Pool // of *flate.Writer
}

// segment is independently compressed text.
type segment struct {
	data   []byte // deflate blocks that end on a byte boundary, none final
	crc    uint32 // of the text
	length int64  // of the text
}

// segmentOverhead is an estimate of the memory in bytes of a cached segment without its data.
const segmentOverhead = 160

// memorySize returns the memory of a cached segment in bytes.
func (s *segment) memorySize() int64 { return int64(cap(s.data)) + segmentOverhead }

// compression is a segment that is being compressed. Other requests wait for it.
type compression struct {
	done chan struct{}
	seg  *segment
	err  error
}

// maxSegments bounds the number of segments beside their bytes.
const maxSegments = 1 << 20

// memoryShare is the share of compressed segments in the memory of all caches.
const memoryShare = 1

// New returns a cache within a memory budget. The registerer may be nil.
func New(budget *memory.Budget, registerer prometheus.Registerer) (*Cache, error) {
	cache := &Cache{
		budget:       budget,
		compressions: map[Key]*compression{},
		seed:         maphash.MakeSeed(),
		hits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "binnacle_compressed_segment_hits_total",
			Help: "[ALPHA] Number of response segments found in the cache of compressed segments.",
		}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "binnacle_compressed_segment_misses_total",
			Help: "[ALPHA] Number of response segments not found in the cache of compressed segments.",
		}),
	}
	_, _ = rand.Read(cache.secret[:]) // does not fail
	var err error
	onEvict := func(_ Key, s *segment) { cache.addBytes(-s.memorySize()) }
	if cache.segments, err = lru.NewLRU[Key, *segment](maxSegments, onEvict); err != nil {
		return nil, err
	}
	cache.quota = budget.Cache("compressed", memoryShare, cache.evict)
	cache.writers.New = func() any {
		w, err := flate.NewWriter(io.Discard, flate.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return w
	}
	if registerer != nil {
		registerer.MustRegister(cache.hits, cache.misses, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "binnacle_compressed_segment_bytes", Help: "[ALPHA] Size in bytes of cached compressed segments.",
		}, cache.cachedBytes))
	}
	return cache, nil
}

// cachedBytes returns the size of all segments.
func (c *Cache) cachedBytes() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.size)
}

// getSegment returns a segment, and compresses the text of fill if the segment is not cached. Of
// several concurrent callers, one compresses.
func (c *Cache) getSegment(key Key, fill func([]byte) ([]byte, error)) (*segment, error) {
	// 1. Return the cached segment, or wait for the caller that compresses it.
	c.mu.Lock()
	if s, ok := c.segments.Get(key); ok {
		c.mu.Unlock()
		c.hits.Inc()
		return s, nil
	}
	if running, ok := c.compressions[key]; ok {
		c.mu.Unlock()
		<-running.done
		if running.seg != nil || running.err != nil {
			return running.seg, running.err
		}
		return c.getSegment(key, fill) // the compressing caller panicked
	}
	// 2. Compress the text.
	running := &compression{done: make(chan struct{})}
	c.compressions[key] = running
	c.mu.Unlock()
	c.misses.Inc()
	defer c.finishCompression(key, running)
	buf := textBuffers.Get().(*[]byte)
	text, err := fill((*buf)[:0])
	if err != nil {
		running.err = err
		return nil, err
	}
	running.seg, running.err = c.compressText(text)
	*buf = text[:0]
	textBuffers.Put(buf)
	return running.seg, running.err
}

// finishCompression caches the segment of a compression, if it has one, and wakes the requests that
// wait for it.
func (c *Cache) finishCompression(key Key, running *compression) {
	c.mu.Lock()
	delete(c.compressions, key)
	if running.seg != nil {
		c.addSegment(key, running.seg)
	}
	c.mu.Unlock()
	close(running.done)
	c.budget.EvictToFit()
}

// textBuffers holds buffers for the text of a segment.
var textBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 128<<10); return &b }}

// addSegment caches a segment. The caller holds mu.
func (c *Cache) addSegment(key Key, added *segment) {
	c.segments.Add(key, added)
	c.addBytes(added.memorySize())
}

// addBytes counts bytes of cached segments, or of dropped ones if bytes is negative. The caller holds mu.
func (c *Cache) addBytes(bytes int64) {
	c.size += bytes
	c.quota.Add(bytes)
}

// evict drops segments of at least the given number of bytes, the least recently used first. It
// returns how many bytes it freed.
func (c *Cache) evict(bytes int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.size
	for before-c.size < bytes {
		if _, _, ok := c.segments.RemoveOldest(); !ok {
			break
		}
	}
	return before - c.size
}

// compressText returns the segment of a text.
func (c *Cache) compressText(text []byte) (*segment, error) {
	writer := c.writers.Get().(*flate.Writer)
	defer c.writers.Put(writer)
	var out bytes.Buffer
	out.Grow(len(text)/6 + 64)
	writer.Reset(&out)
	if _, err := writer.Write(text); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	// Flush ends on a byte boundary. Close would mark the last block final.
	if err := writer.Flush(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return &segment{data: bytes.Clone(out.Bytes()), crc: crc32.ChecksumIEEE(text), length: int64(len(text))}, nil
}

// GzipWriter writes one gzip response.
type GzipWriter struct {
	cache         *Cache
	w             io.Writer
	headerWritten bool
	crc           uint32 // of the text so far
	length        int64  // of the text so far
}

// NewGzipWriter starts a response on w.
func (c *Cache) NewGzipWriter(w io.Writer) *GzipWriter { return &GzipWriter{cache: c, w: w} }

// gzipHeader is the header of a gzip stream: deflate, no name, no time, unknown system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff}

// finalBlock is an empty final block.
var finalBlock = []byte{1, 0, 0, 0xff, 0xff}

// WriteText appends text that is specific to this response.
func (s *GzipWriter) WriteText(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	seg, err := s.cache.compressText(b)
	if err != nil {
		return err
	}
	return s.appendSegment(seg)
}

// WriteSegment appends a shared segment. fill appends the segment's text to a buffer; it is called
// if the segment is not cached.
func (s *GzipWriter) WriteSegment(k Key, fill func([]byte) ([]byte, error)) error {
	seg, err := s.cache.getSegment(k, fill)
	if err != nil {
		return err
	}
	return s.appendSegment(seg)
}

// appendSegment writes a segment and updates the checksum and the length of the text.
func (s *GzipWriter) appendSegment(seg *segment) error {
	if err := s.writeHeader(); err != nil {
		return err
	}
	s.crc = combineChecksums(s.crc, seg.crc, seg.length)
	s.length += seg.length
	_, err := s.w.Write(seg.data)
	return err
}

// writeHeader writes the header before the first segment.
func (s *GzipWriter) writeHeader() error {
	if s.headerWritten {
		return nil
	}
	s.headerWritten = true
	_, err := s.w.Write(gzipHeader)
	return err
}

// Close writes the end of the stream. It does not close the underlying writer.
func (s *GzipWriter) Close() error {
	if err := s.writeHeader(); err != nil {
		return err
	}
	end := make([]byte, 0, len(finalBlock)+8)
	end = append(end, finalBlock...)
	end = binary.LittleEndian.AppendUint32(end, s.crc)
	end = binary.LittleEndian.AppendUint32(end, uint32(s.length))
	_, err := s.w.Write(end)
	return err
}
