package registry

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/tape"
)

// Document defines how objects are processed that are JSON documents without a Go type, such as
// custom resources. Their Go type is *unstructured.Unstructured. Its functions are safe for
// concurrent use.
type Document struct {
	// Shape converts a document to the served and stored form: it fills in defaults, removes
	// unknown fields and disallowed nulls, and normalizes metadata. It returns doc itself if
	// nothing changes. Errors are those of invalid documents.
	Shape func(doc []byte, o DocumentOptions) (ServedDocument, error)
	// Weight estimates the cost in bytes of Shape for a document in JSON, YAML or CBOR. It is
	// cheap.
	Weight func(doc []byte, cbor bool) int
	// Serve converts stored documents of any version to the served one, with defaults and without
	// unknown fields, in the same order. It returns a document itself if nothing changes.
	Serve func(ctx context.Context, stored [][]byte) ([][]byte, error)
	// Open is Serve for one document and returns it parsed. The caller releases it.
	Open func(ctx context.Context, stored []byte) (*tape.Doc, error)
	// Store converts a served document to the stored version, without unknown fields.
	Store func(ctx context.Context, served []byte) ([]byte, error)
	// Convert converts served documents to another version without defaults or removals.
	Convert func(ctx context.Context, served [][]byte, version string) ([][]byte, error)
	// Remote reports whether a webhook converts, which takes time and may fail.
	Remote bool
	// Validate validates a document except for its metadata.
	Validate func(ctx context.Context, w DocumentWrite) field.ErrorList
	// Row computes the cells of Kind.Presentation.Columns from a served document,
	// with the same result as their Cell functions. whole decodes the object for
	// cells that need it. Row is nil without columns.
	Row func(doc []byte, whole func() (Object, error)) ([]any, error)
}

// Custom reports whether a definition declares the kind. Such a kind has a Document and may change
// or disappear while the server runs.
func (k *Kind) Custom() bool { return k.Document != nil }

// HasProtobuf reports whether objects have a protobuf form.
func (k *Kind) HasProtobuf() bool { return k.Document == nil }

// InternalName returns the name of the Go type of an object, or of a
// list, in Kubernetes. Some errors show it.
func (k *Kind) InternalName(list bool) string {
	kind, pkg := k.Kind, "core"
	if list {
		kind = k.ListKind()
	}
	switch {
	case k.Custom() && list:
		return "*unstructured.UnstructuredList"
	case k.Custom():
		return "*unstructured.Unstructured"
	case k.Group != "" && k.Kind != "Event":
		pkg, _, _ = strings.Cut(k.Group, ".")
	}
	return "*" + pkg + "." + kind
}

// ConvertsRemotely reports whether a webhook converts objects.
func (k *Kind) ConvertsRemotely() bool { return k.Document != nil && k.Document.Remote }

// DocumentCost returns Document.Weight of a document, or 0 for a kind with a Go type.
func (k *Kind) DocumentCost(doc []byte, cbor bool) int {
	if k.Document == nil || k.Document.Weight == nil {
		return 0
	}
	return k.Document.Weight(doc, cbor)
}

// ValidateDocument returns the errors of Document.Validate. A kind with a Go type has none.
func (k *Kind) ValidateDocument(ctx context.Context, w DocumentWrite) field.ErrorList {
	if k.Document == nil {
		return nil
	}
	return k.Document.Validate(ctx, w)
}

// DocumentWrite is a write of a document.
type DocumentWrite struct {
	Object Object
	// Text is the served form of the object, Old that of the live object, nil at creation. Their
	// resourceVersion is arbitrary or absent.
	Text, Old []byte
	// Found holds the errors of the metadata. After some of them, rules are not evaluated.
	Found field.ErrorList
	// OnCostly, if set, is called before further rules are evaluated after costly ones.
	OnCostly func()
	// Subresource is the subresource in the path.
	Subresource string
	// Warn is called with warnings.
	Warn func(string)
}

// DocumentOptions are options of Document.Shape.
type DocumentOptions struct {
	// Unknown requests the paths of unknown and duplicate fields.
	Unknown bool
	// KeepNulls keeps nulls that the schema does not allow, so that Validate rejects them.
	KeepNulls bool
	// Foreign is set for documents of another kind or version. The schema of that version shapes
	// them. If there is none, only the metadata is processed.
	Foreign bool
}

// ServedDocument is a document in the served form.
type ServedDocument struct {
	Doc []byte
	// Unknown and Duplicates are the paths of removed unknown and duplicate fields.
	Unknown, Duplicates []string
}
