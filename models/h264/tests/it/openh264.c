/* Writes the first picture that OpenH264 decodes of a stream: Y, U and V rows.
   Built by the tests against libopenh264 where its headers are installed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wels/codec_api.h>

static void write_plane(const unsigned char *samples, int stride, int width, int height) {
    for (int y = 0; y < height; y++) fwrite(samples + (size_t)y * stride, 1, width, stdout);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    FILE *file = fopen(argv[1], "rb");
    if (!file) return 2;
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    unsigned char *stream = malloc(length);
    if (!stream || fread(stream, 1, length, file) != (size_t)length) return 2;

    ISVCDecoder *decoder = NULL;
    if (WelsCreateDecoder(&decoder)) return 2;
    int quiet = WELS_LOG_QUIET;
    (*decoder)->SetOption(decoder, DECODER_OPTION_TRACE_LEVEL, &quiet);
    SDecodingParam parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.sVideoProperty.eVideoBsType = VIDEO_BITSTREAM_AVC;
    parameters.eEcActiveIdc = ERROR_CON_DISABLE;
    if ((*decoder)->Initialize(decoder, &parameters)) return 2;

    unsigned char *planes[3] = {0};
    SBufferInfo info;
    memset(&info, 0, sizeof info);
    int state = (*decoder)->DecodeFrameNoDelay(decoder, stream, (int)length, planes, &info);
    if (info.iBufferStatus != 1) state |= (*decoder)->FlushFrame(decoder, planes, &info);
    if (state || info.iBufferStatus != 1) {
        fprintf(stderr, "state %d, picture %d\n", state, info.iBufferStatus);
        return 1;
    }
    SSysMEMBuffer *buffer = &info.UsrData.sSystemBuffer;
    write_plane(planes[0], buffer->iStride[0], buffer->iWidth, buffer->iHeight);
    for (int c = 1; c < 3; c++)
        write_plane(planes[c], buffer->iStride[1], buffer->iWidth / 2, buffer->iHeight / 2);
    return 0;
}
