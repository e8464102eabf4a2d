package comparison

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Encoding is the media type of a body.
type Encoding string

const (
	JSONBody     Encoding = "application/json"
	YAMLBody     Encoding = "application/yaml"
	ProtobufBody Encoding = "application/vnd.kubernetes.protobuf"
	CBORBody     Encoding = "application/cbor"
)

// encode returns an object in an encoding. An object that protobuf cannot express is sent as JSON.
func encode(object any, as Encoding) ([]byte, Encoding, error) {
	text, err := marshal(object)
	if err != nil {
		return nil, as, err
	}
	switch as {
	case YAMLBody:
		out, err := yaml.JSONToYAML(text)
		return withDuplicates(out), as, err
	case CBORBody:
		out, err := direct.Marshal(plain(object))
		return out, as, err
	case ProtobufBody:
		if out := toProtobuf(text); out != nil {
			return out, as, nil
		}
		return text, JSONBody, nil
	}
	return withDuplicates(text), as, nil
}

// marshal writes JSON without escaping characters of HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// plain replaces json.Number by numbers.
func plain(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range t {
			out[k] = plain(x)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = plain(x)
		}
		return out
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n
		}
		f, _ := t.Float64()
		return f
	}
	return v
}

func toProtobuf(text []byte) []byte {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &b); err != nil {
		return nil
	}
	return b.Bytes()
}

// decode returns the JSON value of a body, or its text if it is none.
func decode(contentType string, body []byte) any {
	media, parameters, _ := strings.Cut(contentType, ";")
	switch {
	case strings.Contains(parameters, "stream=watch"):
		return frames(Encoding(media), body)
	case media == string(ProtobufBody):
		return fromProtobuf(body)
	case media == string(YAMLBody):
		if text, err := yaml.YAMLToJSON(body); err == nil {
			body = text
		}
	case media == string(CBORBody):
		var v any
		if err := direct.Unmarshal(body, &v); err != nil {
			return err.Error()
		}
		text, err := marshal(v)
		if err != nil {
			return err.Error()
		}
		body = text
	}
	if events := jsonValues(body); len(events) == 1 {
		return events[0]
	} else if len(events) > 1 {
		return events
	}
	return string(body)
}

// jsonValues returns a sequence of JSON values; nil if the text is none.
func jsonValues(body []byte) []any {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var out []any
	for {
		var v any
		switch err := dec.Decode(&v); err {
		case nil:
			out = append(out, v)
		case io.EOF:
			return out
		default:
			return nil
		}
	}
}

func fromProtobuf(body []byte) any {
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	object, kind, err := serializer.Decode(body, nil, nil)
	if runtime.IsNotRegisteredError(err) && kind != nil {
		// The forms of a meta version are registered with every group version.
		into, newErr := scheme.Scheme.New(schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: kind.Kind})
		if newErr != nil {
			into, newErr = scheme.Scheme.New(schema.GroupVersionKind{Version: "v1", Kind: kind.Kind})
		}
		if newErr == nil {
			object, _, err = serializer.Decode(body, kind, into)
		}
	}
	if err != nil {
		return fmt.Sprintf("protobuf: %v", err)
	}
	return tree(object)
}

func tree(v any) any {
	text, err := marshal(v)
	if err != nil {
		return err.Error()
	}
	if values := jsonValues(text); len(values) == 1 {
		return values[0]
	}
	return string(text)
}

// frames returns the events of a watch.
func frames(media Encoding, body []byte) any {
	if media != ProtobufBody {
		return jsonValues(body)
	}
	var events []any
	for len(body) >= 4 {
		size := int(binary.BigEndian.Uint32(body))
		if body = body[4:]; size > len(body) {
			return append(events, "incomplete frame")
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(body[:size]); err != nil {
			return append(events, err.Error())
		}
		body = body[size:]
		events = append(events, map[string]any{"type": event.Type, "object": fromProtobuf(event.Object.Raw)})
	}
	return events
}
