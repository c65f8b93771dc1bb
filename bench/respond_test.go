package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/retryplane/retryplane/pkg/wire"
)

// respond answers a sync request without a network.
func respond(r *http.Request, resp wire.SyncResponse) (*http.Response, error) {
	var in wire.SyncRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	resp.Seq = in.Seq
	body, err := json.Marshal(resp)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}
