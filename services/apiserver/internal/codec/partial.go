package codec

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
)

// Names of the metadata-only form.
const (
	PartialKind     = "PartialObjectMetadata"
	PartialListKind = "PartialObjectMetadataList"
	metaGroup       = "meta." + api.Domain
)

// MetaVersion returns the apiVersion of the forms of meta.k8s.io.
func MetaVersion(version string) string { return metaGroup + "/" + version }

// metadata decodes the metadata alone.
func (k *Coder) metadata(it Item) (*metav1.ObjectMeta, error) {
	var m metav1.ObjectMeta
	if isEnvelope(it.Stored) {
		raw, _, _, err := openEnvelope(it.Stored)
		if err != nil {
			return nil, err
		}
		b, err := find(raw, objectMetadata)
		if err != nil {
			return nil, err
		}
		if err := m.Unmarshal(b); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	} else {
		var p metav1.PartialObjectMetadata
		err := json.Unmarshal(it.Stored, &p)
		if k.Decl.Document != nil && (err != nil || p.Generation == 0) {
			p, err = repaired(it.Stored, err)
		}
		if err != nil {
			return nil, err
		}
		m = p.ObjectMeta
	}
	m.ResourceVersion = FormatRevision(it.Revision)
	return &m, nil
}

// repaired decodes the metadata of a stored document as Document.Serve repairs it. It returns cause
// if the value is not a document.
func repaired(stored []byte, cause error) (p metav1.PartialObjectMetadata, err error) {
	d, err := tape.Parse(stored)
	if err != nil && cause != nil {
		return p, cause
	}
	if err != nil {
		return p, err
	}
	if d, err = objectmeta.Repair(d); err != nil {
		return p, err
	}
	defer d.Release()
	err = json.Unmarshal(d.Raw(), &p)
	return p, err
}

// PartialFrame encodes an object's metadata as the frame of an event.
func (k *Coder) PartialFrame(t EventType, version string, it Item) (Frame, error) {
	head := frameHead(t, PartialKind, MetaVersion(version))
	if f, ok := k.transcodedFrame(k.codec.partial(), head, it); ok {
		return f, nil
	}
	m, err := k.metadata(it)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{m})
	if err != nil {
		return nil, err
	}
	return joinFrame(head, body), nil
}

// AppendPartialProto appends the metadata-only form in the protobuf envelope.
func (k *Coder) AppendPartialProto(dst []byte, version string, it Item) ([]byte, error) {
	s, err := k.metaSplice(it)
	if err != nil {
		return nil, err
	}
	dst = appendEnvelope(dst, MetaVersion(version), PartialKind, s.messageSize(true))
	return append(s.appendMeta(dst), envelopeTail...), nil
}

// AppendPartialProtoFrame appends the metadata-only form as a watch event.
func (k *Coder) AppendPartialProtoFrame(dst []byte, t EventType, version string, it Item) ([]byte, error) {
	obj, err := k.AppendPartialProto(nil, version, it)
	if err != nil {
		return nil, err
	}
	return append(appendFrameHead(dst, eventNames[t], len(obj)), obj...), nil
}

// PartialMessage encodes the metadata-only form as a protobuf message without
// an envelope.
func (k *Coder) PartialMessage(it Item) ([]byte, error) {
	s, err := k.metaSplice(it)
	if err != nil {
		return nil, err
	}
	return s.appendMeta(make([]byte, 0, s.messageSize(true))), nil
}

// partialItems is the field number of the items in a PartialObjectMetadataList.
const partialItems = 2

func (k *Coder) metaSplice(it Item) (*splice, error) {
	s := new(splice)
	if k.Decl.Document == nil {
		return s, k.splice(s, it)
	}
	raw, err := k.metadataMessage(it)
	if err != nil {
		return nil, err
	}
	return s, s.init(raw, it.Revision)
}
