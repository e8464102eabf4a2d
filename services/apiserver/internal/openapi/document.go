package openapi

import (
	"bytes"
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

// document is one document in each form that was asked for. It is made when it
// is first asked for, by one caller while others wait; a failure is not kept.
type document struct {
	build   func() ([]byte, error)
	toProto func(json []byte) ([]byte, error)

	mu    sync.Mutex // guards forms; nothing is locked while it is held
	forms map[bool]*content
	made  time.Time
}

// content is a form's bytes, compressed: a few hundred kilobytes where the text
// has megabytes.
type content struct {
	gzip []byte
	// etag is the hash of the JSON form, for all forms: Vary keeps them apart.
	etag string
	made time.Time
}

func newDocument(build func() ([]byte, error), toProto func([]byte) ([]byte, error)) *document {
	return &document{build: build, toProto: toProto, forms: map[bool]*content{}}
}

// content returns the JSON or the protobuf form.
func (d *document) content(protobuf bool) (*content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.forms[protobuf]; c != nil {
		return c, nil
	}
	if !protobuf {
		text, err := d.build()
		if err != nil {
			return nil, err
		}
		return d.keep(false, text, hash(text))
	}
	var text []byte
	var err error
	etag := ""
	if c := d.forms[false]; c != nil {
		text, err = c.plain()
		etag = c.etag
	} else {
		if text, err = d.build(); err == nil {
			etag = hash(text)
		}
	}
	if err != nil {
		return nil, err
	}
	b, err := d.toProto(text)
	if err != nil {
		return nil, fmt.Errorf("protobuf form: %w", err)
	}
	return d.keep(true, b, etag)
}

func (d *document) keep(protobuf bool, b []byte, etag string) (*content, error) {
	if d.made.IsZero() {
		d.made = time.Now()
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	c := &content{gzip: bytes.Clone(buf.Bytes()), etag: etag, made: d.made}
	d.forms[protobuf] = c
	return c, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// plain is the content without compression.
func (c *content) plain() ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(c.gzip))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// v2Proto and v3Proto make the protobuf forms.
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
