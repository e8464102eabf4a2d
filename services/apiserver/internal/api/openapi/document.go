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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/registry/apis/typename"
)

// document is an OpenAPI document in two forms, JSON and protobuf. Each form is built when it is
// first requested, protobuf from JSON.
type document struct {
	packer      *packer
	build       func(*SchemaCache) ([]byte, error) // returns the JSON form
	toProto     func(json []byte) ([]byte, error)  // converts it to the protobuf form
	json, proto shared[*content]
}

// content is one form of a document. It holds the compressed bytes: a few hundred kilobytes for
// megabytes of text.
type content struct {
	gzip []byte
	size int // uncompressed
	// etag is the hash of the JSON form. Both forms have the same ETag, because responses have the
	// header Vary: Accept.
	etag  string
	built time.Time

	mu    sync.Mutex // protects the fields below
	text  []byte     // uncompressed bytes; nil if there are no users
	users int        // of text
}

// newDocument returns a document. The capacity of slots is the maximum number of concurrent builds
// of all documents with the same slots.
func (p *packer) newDocument(
	slots chan struct{},
	build func(*SchemaCache) ([]byte, error),
	toProto func([]byte) ([]byte, error),
) *document {
	return &document{
		packer: p, build: build, toProto: toProto,
		json: shared[*content]{slots: slots}, proto: shared[*content]{slots: slots},
	}
}

// content returns the JSON or the protobuf form, and builds it if needed. The build uses the cache
// r. It returns the errors of the build and of shared.get.
func (d *document) content(ctx context.Context, r *SchemaCache, protobuf bool) (*content, error) {
	out, err := d.json.get(ctx, func(context.Context) (*content, error) {
		data, err := d.build(r)
		if err != nil {
			return nil, err
		}
		return d.packer.compress(data, hash(data), time.Now())
	})
	if err != nil || !protobuf {
		return out, err
	}
	return d.proto.get(ctx, func(context.Context) (*content, error) {
		data, release, err := out.uncompressed()
		if err != nil {
			return nil, err
		}
		defer release()
		b, err := d.toProto(data)
		if err != nil {
			return nil, fmt.Errorf("protobuf form: %w", err)
		}
		return d.packer.compress(b, out.etag, out.built)
	})
}

// packer compresses documents. It pools gzip writers, because a writer takes ten times the memory
// of a small document.
type packer struct{ writers sync.Pool }

// compress returns the content with the uncompressed bytes data.
func (p *packer) compress(data []byte, etag string, built time.Time) (*content, error) {
	var buf bytes.Buffer
	writer, ok := p.writers.Get().(*gzip.Writer)
	if !ok {
		writer = gzip.NewWriter(nil)
	}
	defer p.writers.Put(writer)
	writer.Reset(&buf)
	defer writer.Reset(nil) // do not retain the buffer
	if _, err := writer.Write(data); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return &content{gzip: bytes.Clone(buf.Bytes()), size: len(data), etag: etag, built: built}, nil
}

// hash returns the hash of a document in hexadecimal form, for the ETag.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// uncompressed returns the uncompressed bytes. Concurrent users share them, because slow clients
// may use them for a long time. Each caller must call release once it no longer uses them.
func (c *content) uncompressed() (data []byte, release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 {
		reader, err := gzip.NewReader(bytes.NewReader(c.gzip))
		if err != nil {
			return nil, nil, err
		}
		data := make([]byte, c.size)
		if _, err := io.ReadFull(reader, data); err != nil {
			return nil, nil, err
		}
		c.text = data
	}
	c.users++
	return c.text, sync.OnceFunc(c.release), nil
}

// release records that a user no longer uses the uncompressed bytes. The last user drops them.
func (c *content) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 {
		c.text = nil
	}
}

// v2Proto converts a v2 document from JSON to protobuf.
func v2Proto(json []byte) ([]byte, error) {
	doc, err := openapiv2.ParseDocument(json)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

// v3Proto converts a v3 document from JSON to protobuf.
func v3Proto(json []byte) ([]byte, error) {
	doc, err := openapiv3.ParseDocument(json)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

// customName returns the name of a custom resource's model: com.example.v1.Widget.
func customName(gvk schema.GroupVersionKind) string {
	return typename.Friendly(gvk.Group+"/"+gvk.Version) + "." + gvk.Kind
}

// nameParts returns the words of a group's name without the domain k8s.io. The core group, which
// has no name, is called core.
func nameParts(group string) []string {
	if group == "" {
		return []string{"core"}
	}
	return strings.FieldsFunc(strings.TrimSuffix(group, "."+api.Domain), func(r rune) bool { return r == '.' || r == '-' })
}

// camelCase joins words, such as rbac and authorization, to RbacAuthorization.
func camelCase(words []string) string {
	var builder strings.Builder
	for _, w := range words {
		builder.WriteString(title(w))
	}
	return builder.String()
}

// title returns s with an upper-case first letter.
func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// operationID returns the id of an operation, such as listCoreV1PodForAllNamespaces for the verb
// list and the subject PodForAllNamespaces. It removes hyphens in the subject.
func operationID(verb string, gv schema.GroupVersion, subject string) string {
	return verb + camelCase(nameParts(gv.Group)) + title(gv.Version) + camelCase(strings.Split(subject, "-"))
}

// tag returns the tag of a group version's operations, such as rbacAuthorization_v1.
func tag(group, version string) string {
	words := nameParts(group)
	name := words[0] + camelCase(words[1:])
	if version != "" {
		name += "_" + version
	}
	return name
}

// apiPath returns the path of a group version without its leading slash.
func apiPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
