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
	// Normalize converts a document to the served and stored form: it fills in defaults, removes
	// unknown fields and disallowed nulls, and normalizes metadata. It returns doc itself if
	// nothing changes. It returns an error for an invalid document.
	Normalize func(doc []byte, o DocumentOptions) (ServedDocument, error)
	// EstimateCost estimates the memory in bytes that Normalize needs for a document in JSON, YAML or
	// CBOR, without parsing it.
	EstimateCost func(doc []byte, cbor bool) int
	// ToServed converts stored documents of any version to the served one, with defaults and
	// without unknown fields, in the same order. It returns a document itself if nothing changes.
	ToServed func(ctx context.Context, stored [][]byte) ([][]byte, error)
	// ParseServed converts one document like ToServed, and returns it parsed. The caller releases
	// it.
	ParseServed func(ctx context.Context, stored []byte) (*tape.Doc, error)
	// ToStored converts a served document to the stored version, without unknown fields.
	ToStored func(ctx context.Context, served []byte) ([]byte, error)
	// Convert converts served documents to another version without defaults or removals.
	Convert func(ctx context.Context, served [][]byte, version string) ([][]byte, error)
	// ConversionWebhook reports whether a webhook converts documents, which takes time and may fail.
	ConversionWebhook bool
	// Validate validates a document except for its metadata.
	Validate func(ctx context.Context, w DocumentWrite) field.ErrorList
	// TableRow computes the cells of Kind.Presentation.Columns from a served document, with the
	// same result as their Cell functions. whole decodes the object for cells that need it.
	// TableRow is nil without columns.
	TableRow func(doc []byte, whole func() (Object, error)) ([]any, error)
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

// UsesConversionWebhook reports whether a webhook converts objects.
func (k *Kind) UsesConversionWebhook() bool { return k.Document != nil && k.Document.ConversionWebhook }

// DocumentCost returns Document.EstimateCost of a document, or 0 for a kind with a Go type.
func (k *Kind) DocumentCost(doc []byte, cbor bool) int {
	if k.Document == nil || k.Document.EstimateCost == nil {
		return 0
	}
	return k.Document.EstimateCost(doc, cbor)
}

// ValidateDocument returns the errors of Document.Validate. A kind with a Go type has none.
func (k *Kind) ValidateDocument(ctx context.Context, write DocumentWrite) field.ErrorList {
	if k.Document == nil {
		return nil
	}
	return k.Document.Validate(ctx, write)
}

// DocumentWrite is a write of a document.
type DocumentWrite struct {
	Object Object
	// JSON is the served form of Object. OldJSON is the served form of the live object, nil at
	// creation. Their resourceVersion is arbitrary or absent.
	JSON, OldJSON []byte
	// MetadataErrors holds the errors of the metadata. After some of them, rules are not evaluated.
	MetadataErrors field.ErrorList
	// BeforeCostlyRules, if set, is called when rules have been costly, before more are evaluated.
	BeforeCostlyRules func()
	// Subresource is the subresource in the path.
	Subresource string
	// Warn is called with warnings.
	Warn func(string)
}

// DocumentOptions are options of Document.Normalize.
type DocumentOptions struct {
	// ReportUnknown requests the paths of unknown and duplicate fields.
	ReportUnknown bool
	// KeepNulls keeps nulls that the schema does not allow, so that Validate rejects them.
	KeepNulls bool
	// DropMalformedMetadata drops fields of the metadata that have a wrong type or format, which
	// are an error otherwise.
	DropMalformedMetadata bool
	// OtherVersion is set for documents of another kind or version. They are normalized by the schema
	// of that version. If there is none, only the metadata is processed.
	OtherVersion bool
}

// ServedDocument is a document in the served form.
type ServedDocument struct {
	Doc []byte
	// Unknown and Duplicates are the paths of removed unknown and duplicate fields.
	Unknown, Duplicates []string
}
