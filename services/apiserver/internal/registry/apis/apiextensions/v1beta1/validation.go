package v1beta1

import (
	"bytes"
	"sync"

	"binnacle/services/apiserver/internal/json/jsontext"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// CustomResourceValidation is the counterpart of the v1 type of this name. Its JSON is most of a
// stored definition, so it is read and written without reflection.
type CustomResourceValidation struct {
	OpenAPIV3Schema *v1.JSONSchemaProps `json:"openAPIV3Schema,omitempty" protobuf:"bytes,1,opt,name=openAPIV3Schema"`
}

// bufferPool holds buffers for encoding schemas whose encoded size is not yet known.
var bufferPool = sync.Pool{New: func() any { return new([]byte) }}

// MarshalJSON implements json.Marshaler.
func (c CustomResourceValidation) MarshalJSON() ([]byte, error) {
	if c.OpenAPIV3Schema == nil {
		return []byte("{}"), nil
	}
	buf, _ := bufferPool.Get().(*[]byte)
	defer bufferPool.Put(buf)
	data := append((*buf)[:0], `{"openAPIV3Schema":`...)
	data = c.OpenAPIV3Schema.AppendJSON(data)
	data = append(data, '}')
	*buf = data
	return bytes.Clone(data), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *CustomResourceValidation) UnmarshalJSON(data []byte) error {
	text, err := jsontext.Find(data, "openAPIV3Schema")
	if err != nil || text == nil || jsontext.IsNull(text) {
		return err
	}
	c.OpenAPIV3Schema, err = v1.ReadSchema(text)
	return err
}
