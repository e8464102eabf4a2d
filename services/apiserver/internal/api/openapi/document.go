package openapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/proto"
)

// document is one document in each requested form. It is built from its JSON form on first use.
type document struct {
	packer  *packer
	build   func(*SchemaCache) ([]byte, error)
	toProto func(json []byte) ([]byte, error)

	json, proto shared[*content]
}

// content holds the compressed bytes of a form: a few hundred kilobytes for megabytes of text.
type content struct {
	gzip []byte
	size int // without compression
	// etag is the hash of the JSON form, for all forms: Vary keeps them apart.
	etag  string
	built time.Time

	mu    sync.Mutex
	text  []byte // without compression, while there are users
	users int
}

// newDocument returns a document whose builds are limited by the capacity of turns.
func (p *packer) newDocument(turns chan struct{}, build func(*SchemaCache) ([]byte, error), toProto func([]byte) ([]byte, error)) *document {
	return &document{packer: p, build: build, toProto: toProto, json: shared[*content]{slots: turns}, proto: shared[*content]{slots: turns}}
}

// content returns the JSON or the protobuf form. A build uses what r has already read. Its errors
// include those of shared.get.
func (d *document) content(ctx context.Context, r *SchemaCache, protobuf bool) (*content, error) {
	c, err := d.json.get(ctx, func(context.Context) (*content, error) {
		data, err := d.build(r)
		if err != nil {
			return nil, err
		}
		return d.packer.content(data, hash(data), time.Now())
	})
	if err != nil || !protobuf {
		return c, err
	}
	return d.proto.get(ctx, func(context.Context) (*content, error) {
		data, release, err := c.uncompressed()
		if err != nil {
			return nil, err
		}
		defer release()
		b, err := d.toProto(data)
		if err != nil {
			return nil, fmt.Errorf("protobuf form: %w", err)
		}
		return d.packer.content(b, c.etag, c.built)
	})
}

// packer compresses contents. A gzip writer takes ten times the memory of a small document, so the
// writers are pooled.
type packer struct{ writers sync.Pool }

// content compresses a form of a document.
func (p *packer) content(b []byte, etag string, created time.Time) (*content, error) {
	var buf bytes.Buffer
	z, ok := p.writers.Get().(*gzip.Writer)
	if !ok {
		z = gzip.NewWriter(nil)
	}
	defer p.writers.Put(z)
	z.Reset(&buf)
	defer z.Reset(nil) // drops the reference to the buffer
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return &content{gzip: bytes.Clone(buf.Bytes()), size: len(b), etag: etag, built: created}, nil
}

// hash returns the ETag of a document.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// uncompressed returns the content without compression. It is kept until all users have called
// release, because clients that do not read hold it for long.
func (c *content) uncompressed() (data []byte, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 {
		z, err := gzip.NewReader(bytes.NewReader(c.gzip))
		if err != nil {
			return nil, nil, err
		}
		data := make([]byte, c.size)
		if _, err := io.ReadFull(z, data); err != nil {
			return nil, nil, err
		}
		c.text = data
	}
	c.users++
	return c.text, sync.OnceFunc(c.release), nil
}

// release ends one use of the uncompressed content.
func (c *content) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 {
		c.text = nil
	}
}

// v2Proto and v3Proto return the protobuf forms.
func v2Proto(json []byte) ([]byte, error) {
	doc, err := openapiv2.ParseDocument(json)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

func v3Proto(json []byte) ([]byte, error) {
	doc, err := openapiv3.ParseDocument(json)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}
