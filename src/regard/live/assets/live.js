// The component of live pages: open the tensors, make the model and the reader, and show their screen.
renderers.live = ({ model, reader, screen }) => {
  const running = programs[model.program](model.config, openTensors(model.tensors));
  const reading = { names: reader.config.names, ...readers[reader.program](reader.config) };
  return screens[screen.program]({ ...screen.config, names: reader.config.names, model: running, reader: reading });
};
