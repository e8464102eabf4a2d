package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/customresource/tape"
)

// Document says how objects are read and judged that are JSON documents without
// a Go type, such as custom resources. In Go they are
// *unstructured.Unstructured. Its functions are safe for concurrent use.
type Document struct {
	// Shape makes a document what is served and stored: defaults are filled in,
	// unknown fields and unwanted nulls go, metadata is cleaned. It returns doc
	// itself where nothing changes. Errors tell what cannot be read.
	Shape func(doc []byte, o ShapeOptions) (Shaped, error)
	// Weight is how many bytes Shape may make of a document in JSON, YAML or CBOR, about, in no time.
	Weight func(doc []byte, cbor bool) int
	// Serve brings stored documents of any version to the served one, defaulted
	// and pruned, in the same order. It returns a document itself where nothing
	// changes.
	Serve func(ctx context.Context, stored [][]byte) ([][]byte, error)
	// Open is Serve for one document, which is read. Who has it releases it.
	Open func(ctx context.Context, stored []byte) (*tape.Doc, error)
	// Store brings a served document to the version that is stored, pruned.
	Store func(ctx context.Context, served []byte) ([]byte, error)
	// Convert brings served documents to another version as they are.
	Convert func(ctx context.Context, served [][]byte, version string) ([][]byte, error)
	// Remote tells that a webhook converts, which takes its time and may fail.
	Remote bool
	// Validate checks a document beyond its metadata.
	Validate func(ctx context.Context, w DocumentWrite) field.ErrorList
	// Row reads from a served document the cells of Kind.Shown.Columns, each as its
	// Cell has it. whole decodes the object, for those that need it. It is nil where
	// there are no columns.
	Row func(doc []byte, whole func() (Object, error)) ([]any, error)
	// Unserved are the versions of the kind that are not served. Managers keep the fields
	// that they own in these versions.
	Unserved []*Kind
}

// DocumentWrite is what a write makes of a document.
type DocumentWrite struct {
	Object Object
	// Text is the object as it is served, Old the one before, nil at creation. They
	// have no resourceVersion, or any.
	Text, Old []byte
	// Found is what is wrong with the metadata: of some of it, rules are not evaluated.
	Found field.ErrorList
	// Costly, if set, is called when rules have cost a lot, before they go on.
	Costly func()
	// Subresource is that of the path.
	Subresource string
	// Warn is told what is wrong but tolerated.
	Warn func(string)
}

// ShapeOptions say how a document is shaped.
type ShapeOptions struct {
	// Unknown asks for the paths of unknown and repeated fields.
	Unknown bool
	// KeepNulls keeps nulls that the schema does not allow, so that Validate refuses them.
	KeepNulls bool
	// Foreign shapes the metadata alone. It is set for documents of another kind or version, which
	// the schema does not describe.
	Foreign bool
}

// Shaped is a document as it is served.
type Shaped struct {
	Doc []byte
	// Unknown and Duplicates are the paths of fields that are left out because
	// they are unknown, or came twice.
	Unknown, Duplicates []string
}
